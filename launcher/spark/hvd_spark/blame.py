"""Which rank is to blame: the rule of hvdrun (launcher/src/job_policy.hpp), without clock or
process."""

import signal
from typing import NamedTuple, Optional

# A rank's death takes others with it, and news of both may wait behind output on two ways: longer
# than hvdrun needs.
SETTLE_SECONDS = 0.5
_INTERNAL = 70  # EX_SOFTWARE of sysexits.h


class End(NamedTuple):
    """How one rank ended."""

    rank: int
    status: Optional[int]  # as from waitpid; None: its task was lost
    seconds: float = 0.0
    at: float = 0.0  # when, by the driver's clock and the agent's measure
    deserted: bool = False  # exited 0 without having left the job

    def code(self):
        """What a shell would give; None for a lost task. hvdrun's own for a deserter."""
        if self.status is None:
            return None
        if self.deserted:
            return _INTERNAL
        killed_by = self.status & 0x7F
        return 128 + killed_by if killed_by else self.status >> 8

    def how(self):
        if self.status is None:
            return "was lost with its task"
        killed_by = self.status & 0x7F
        if self.deserted:
            return "exited 0 without hvd::shutdown() after %.1f s" % self.seconds
        if not killed_by:
            return "exited %d after %.1f s" % (self.code(), self.seconds)
        try:
            name = signal.Signals(killed_by).name
        except ValueError:
            name = "a real-time signal"
        return "was killed by signal %d (%s) after %.1f s" % (killed_by, name, self.seconds)

    def is_strong(self):
        """Being killed is a cause; an error exit soon after is most likely a consequence, and so is
        SIGABRT, the end of an uncaught exception."""
        code = self.code()
        return code is None or (128 < code <= 128 + 64 and code != 128 + signal.SIGABRT)


class Blame:
    """Collects failures until they have settled."""

    def __init__(self):
        self._causes = []
        self._settled_at = None

    def add(self, end, now):
        if end.code() == 0:
            return
        self._causes.append(end)
        # That one went without a farewell is no failure, unless others fail of it.
        if self._settled_at is None and not end.deserted:
            self._settled_at = now + SETTLE_SECONDS

    def settled_at(self):
        """When the culprit is known; None while there is no failure."""
        return self._settled_at

    def causes(self, lost_by):
        """The culprit first. lost_by(rank) is the rank whose loss that one complained of, or None:
        a victim can be over before the system has cleared away what it is a victim of."""
        first = min(self._causes, key=lambda end: (not end.is_strong(), not end.deserted, end.at))
        if not first.is_strong() and not first.deserted:
            named = lost_by(first.rank)
            first = next((end for end in self._causes if end.rank == named), first)
        return [first] + [end for end in self._causes if end is not first]
