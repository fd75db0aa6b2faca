"""What hvdrun's front end does, for agents that are reached through channels: an Agent, or a Link
to one. Prepares and launches them, prints what the ranks write, ends all of them when one fails."""

import json
import queue
import re
import secrets
import signal
import threading
import time

from . import frames
from .blame import Blame, End
from .errors import ProgramError, StartError
from .output import Output
from .placement import rank_variables

_FAILURE_GRACE = 1.0  # between SIGTERM and SIGKILL
_INTERRUPT_GRACE = 2.0
_LAST_SECONDS = 10.0  # for what is left after SIGKILL to be told
_LAUNCH_SECONDS = 30.0


class _Member:
    """The ranks of one agent."""

    def __init__(self, channel, ranks, hostname):
        self.channel, self.ranks, self.hostname = channel, ranks, hostname
        self.prepared = None
        self.done = False

    def tell(self, frame):
        try:
            self.channel.send(frame)
        except OSError:
            pass  # its end is noticed where it is listened to


class Job:
    """Used by one thread, but for `adopt` and `put`."""

    def __init__(self, size, output=None):
        self.id = "spark-" + secrets.token_hex(8)
        self.size = size
        # (who, what); bounded by the output that agents may have on its way
        self._events = queue.Queue()
        self._members = {}  # by channel
        self._channels = []  # all, also those without a place yet
        self._closed = False
        self._output = output or Output()
        self._blame = Blame()
        self._pids = {}
        self._began = {}
        self._running = set(range(size))

    # ---- events, from other threads

    def put(self, who, what):
        self._events.put((who, what))

    def adopt(self, channel):
        """Listens to it: (channel, frame) for each, (channel, None) at its end."""
        self._channels.append(channel)
        if self._closed:
            channel.close()

        def listen():
            try:
                while (frame := channel.receive()) is not None:
                    self.put(channel, frame)
            except (OSError, ValueError):
                pass
            self.put(channel, None)

        threading.Thread(target=listen, daemon=True, name="hvd-spark-channel").start()

    def next_event(self, deadline=None):
        """None once the deadline (monotonic) has passed."""
        try:
            return self._events.get(
                timeout=None if deadline is None else max(0.0, deadline - time.monotonic())
            )
        except queue.Empty:
            return None

    # ---- what is done in this order

    def meet(self, tasks, ranks_per_task):
        """Waits until the tasks of the stage have said hello, and tells each its place. How long
        they take is up to Spark, which says so itself when one fails: put("spark", exception)."""
        hellos = {}
        while len(hellos) < tasks:
            who, what = self.next_event()
            if who == "spark":
                raise StartError("the barrier stage did not start: " + _text(what)) from _exception(
                    what
                )
            if what is None:
                hellos = {task: known for task, known in hellos.items() if known[0] is not who}
                continue
            hello = json.loads(what)
            hellos[hello["task"]] = (who, hello)
        hosts = [hellos[rank // ranks_per_task][1]["host"] for rank in range(self.size)]
        variables = rank_variables(hosts)
        for task, (channel, hello) in hellos.items():
            ranks = list(range(task * ranks_per_task, (task + 1) * ranks_per_task))
            self.add(channel, ranks, hello["name"])
            first = frames.MEET_ON_MACHINE if len(set(hosts)) == 1 else frames.MEET_ON_NETWORK
            place = {
                "job": self.id,
                "ranks": ranks,
                "variables": [variables[rank] for rank in ranks],
                "meeting": first if ranks[0] == 0 else frames.MEET_ELSEWHERE,
            }
            self._members[channel].tell(json.dumps(place).encode())

    def add(self, channel, ranks, hostname):
        self._members[channel] = _Member(channel, ranks, hostname)

    def launch(self):
        """Once every agent has prepared its ranks. Raises StartError."""
        deadline = time.monotonic() + _LAUNCH_SECONDS
        while waiting := [member for member in self._members.values() if member.prepared is None]:
            event = self.next_event(deadline)
            if event is None:
                raise StartError(
                    "%s did not prepare its ranks within %d s" % (_names(waiting), _LAUNCH_SECONDS)
                )
            self._on_preparing(*event)
        first = next(member for member in self._members.values() if member.ranks[0] == 0)
        variables = [
            "HVD_JOB_ID=" + self.id,
            "HVD_RESTART_COUNT=0",
            "HVD_STORE=" + first.prepared.store,
            "MASTER_ADDR=" + first.prepared.master_host,
            "MASTER_PORT=%d" % first.prepared.master_port,
        ]
        self._tell_all(frames.launch(variables))

    def _on_preparing(self, who, what):
        if who == "spark":
            raise StartError("the barrier stage ended: " + _text(what)) from _exception(what)
        member = self._members.get(who)
        if member is None:
            return
        frame = None if what is None else frames.decode(what)
        if what is None:
            raise StartError("%s was lost before its ranks started" % _names([member]))
        if isinstance(frame, frames.Refused):
            raise StartError("%s: %s" % (_names([member]), frame.message))
        if isinstance(frame, frames.Prepared):
            member.prepared = frame
            member.hostname = frame.hostname

    def watch(self):
        """Until all ranks have ended. Raises ProgramError, and StartError when some could not be
        started."""
        while not self._all_done():
            event = self.next_event(self._blame.settled_at())
            if event is not None:
                self._on_running(*event)
            settled = self._blame.settled_at()
            if settled is not None and (time.monotonic() >= settled or not self._running):
                self.end(signal.SIGTERM, _FAILURE_GRACE)
                raise self._error()
        self._output.finish()
        if self._blame.settled_at() is not None:
            raise self._error()

    def _on_running(self, who, what):
        member = self._members.get(who)
        if member is None or member.done:
            return
        if what is None:
            member.done = True
            for rank in self._running & set(member.ranks):
                self._blame.add(End(rank, None, at=time.monotonic()), time.monotonic())
            self._running -= set(member.ranks)
            return
        frame = frames.decode(what)
        if isinstance(frame, frames.Output):
            self._output.feed(frame.rank, frame.stream, frame.bytes)
            member.tell(frames.credit(len(frame.bytes)))
        elif isinstance(frame, frames.Started):
            self._pids[frame.rank] = frame.pid
            self._began[frame.rank] = time.monotonic()
        elif isinstance(frame, frames.Exited):
            self._running.discard(frame.rank)
            now = time.monotonic()
            at = self._began.get(frame.rank, now) + frame.seconds
            self._blame.add(End(frame.rank, frame.status, frame.seconds, at, frame.deserted), now)
        elif isinstance(frame, frames.Refused):
            raise StartError("%s: %s" % (_names([member]), frame.message))
        elif isinstance(frame, frames.Done):
            member.done = True

    def end(self, number, grace):
        """Ends all ranks, and prints what they still say. Returns when the agents have nothing
        left."""
        self._tell_all(frames.end(number, grace))
        deadline = time.monotonic() + grace + _LAST_SECONDS
        ours = self._blame
        self._blame = Blame()  # what ends from here on did not end by itself
        try:
            while not self._all_done():
                event = self.next_event(deadline)
                if event is None:
                    break
                self._on_running(*event)
        except StartError:
            pass
        self._blame = ours
        self._output.finish()

    def interrupt(self):
        self.end(signal.SIGINT, _INTERRUPT_GRACE)

    def close(self):
        """Every agent kills what it still has."""
        self._closed = True
        for channel in self._channels:
            channel.close()

    def _tell_all(self, frame):
        for member in self._members.values():
            if not member.done:
                member.tell(frame)

    def _all_done(self):
        return all(member.done for member in self._members.values())

    def _error(self):
        culprit, *others = self._blame.causes(self._output.lost_by)
        # A deserter may know of nothing; what that meant to the others stands in their output.
        quoted = others[0] if culprit.deserted and others else culprit
        lines = self._output.tail(quoted.rank)
        text = self._describe(culprit)
        for other in others:
            text += "\nthen " + self._describe(other)
        whose = "its" if quoted is culprit else "rank %d's" % quoted.rank
        text += "\n%s last lines:\n" % whose + "\n".join(lines) if lines else "\nit wrote nothing"
        return ProgramError(text, culprit.rank, culprit.code(), lines)

    def _describe(self, end):
        host = next(
            member.hostname for member in self._members.values() if end.rank in member.ranks
        )
        pid = ", pid %d" % self._pids[end.rank] if end.rank in self._pids else ""
        return "rank %d on %s%s %s" % (end.rank, host, pid and " (%s)" % pid[2:], end.how())


def _names(members):
    return ", ".join(
        "rank %s on %s"
        % ("-".join(str(rank) for rank in sorted({m.ranks[0], m.ranks[-1]})), m.hostname)
        for m in members
    )


def _text(what):
    """Its first line, and the last that looks like the cause: Java's are pages long."""
    lines = str(what).strip().splitlines() or [repr(what)]
    causes = [line for line in lines[1:] if re.match(r"\w[\w.]*(Error|Exception): ", line)]
    return "; ".join(line[:500] for line in lines[:1] + causes[-1:])


def _exception(what):
    return what if isinstance(what, BaseException) else None
