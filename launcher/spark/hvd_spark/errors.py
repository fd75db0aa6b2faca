"""What `HvdDistributor.run` raises once a job was to start; wrong arguments are ValueError or
TypeError."""


class HvdError(RuntimeError):
    """Base class."""


class StartError(HvdError):
    """No rank ran: too few slots, a program that is not there, a host without hvdrun."""


class ProgramError(HvdError):
    """A rank failed, or was lost, and the job was ended.

    rank: the one to blame. code: what it exited with, 128 + N when signal N killed it, 70 when it
    left the others without a shutdown, None when its whole task was lost. lines: the last 100 lines
    of it, or of the first rank that failed because of it, as they were printed.
    """

    def __init__(self, message, rank, code, lines):
        super().__init__(message)
        self.rank = rank
        self.code = code
        self.lines = lines
