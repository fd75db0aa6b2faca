"""Defines the errors that `HvdDistributor.run` raises when a job does not start or fails. Wrong
arguments raise ValueError or TypeError."""


class HvdError(RuntimeError):
    """The base class of all errors of hvd_spark."""


class StartError(HvdError):
    """Says that no rank has run, for example because there are too few slots, or because a host
    lacks the program or hvdrun."""


class ProgramError(HvdError):
    """Says that a rank has failed or was lost, and that the job was ended.

    rank: the rank that is to blame.
    code: its exit status, which is 128 + N when signal N killed it, 70 when it exited without a
    shutdown while the other ranks still needed it, and None when its whole task was lost.
    lines: the last 100 lines that this rank printed, or, with code 70, that the first rank printed
    that failed because of it, if there is one.
    """

    def __init__(self, message, rank, code, lines):
        super().__init__(message)
        self.rank = rank
        self.code = code
        self.lines = lines
