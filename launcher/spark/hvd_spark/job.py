"""Runs a job whose agents are reached through channels. A channel is an Agent, or a Link to a task
that has an Agent.

`hvdrun --attached` is the front end. It prepares and launches the ranks, finds out which rank is to
blame, and ends the others. This module passes the frames between hvdrun and its agents, and prints
hvdrun's output.
"""

import codecs
import json
import os
import queue
import re
import secrets
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time

from .agent import find_hvdrun, own_environment
from .errors import HvdError, ProgramError, StartError

TAIL_LINES = 100
_END_SECONDS = 15.0  # the time that hvdrun has to end the ranks; its own deadlines are shorter
_MOST = 1 << 16


class _Printer:
    """Prints bytes as text, on the thread of the caller."""

    def __init__(self, to, name):
        self._to, self._name = to, name
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data):
        text = self._decoder.decode(data, final=not data)
        if not text:
            return
        to = self._to or getattr(sys, self._name)
        try:
            to.write(text)
        except UnicodeEncodeError:  # the driver's locale lacks a character
            to.write(text.encode("ascii", "backslashreplace").decode("ascii"))
        to.flush()


class Job:
    """One thread uses a Job; any thread may call `adopt` and `put`.

    streams: two text streams for the output of the ranks; None stands for sys.stdout or sys.stderr.
    """

    def __init__(self, hvdrun, streams=(None, None), timestamps=False):
        self.id = "spark-" + secrets.token_hex(8)
        self._hvdrun, self._streams, self._timestamps = hvdrun, streams, timestamps
        self._events = queue.Queue()  # pairs: a channel or "spark", and its message
        self._channels = []  # all channels, also those that have no ranks yet
        self._agents = []  # the description of each agent for hvdrun
        self._near = {}  # this process's end of the socket to hvdrun, by channel
        self._far = []  # hvdrun's ends of these sockets, by agent
        self._places = []  # pairs: a channel, and the message for its task once hvdrun runs
        self._closed = False
        self._process = None
        self._outcome = b""
        self._selector = selectors.DefaultSelector()

    # ---- events, from other threads

    def put(self, who, what):
        self._events.put((who, what))

    def adopt(self, channel):
        """Starts to read the channel. Until it is attached, each of its messages becomes an event
        (channel, message), and its end becomes the event (channel, None). Afterwards everything is
        passed on to hvdrun."""
        self._channels.append(channel)
        if self._closed:
            channel.close()

        def listen():
            try:
                while (data := channel.receive()) is not None:
                    near = self._near.get(channel)
                    if near is None:
                        self.put(channel, data)
                    else:
                        near.sendall(data)
            except OSError:
                channel.close()  # hvdrun has ended
            near = self._near.get(channel)
            if near is None:
                self.put(channel, None)
            else:
                _shut_down(near, socket.SHUT_WR)

        threading.Thread(target=listen, daemon=True, name="hvd-spark-channel").start()

    # ---- the steps of a job, in this order

    def meet(self, tasks, ranks_per_task):
        """Waits for the first message of every task of the stage and attaches the tasks. There is
        no deadline, because only Spark knows how long they take. When the stage fails, the thread
        of the Spark job ends the wait with put("spark", exception)."""
        hellos = {}
        while len(hellos) < tasks:
            who, what = self._events.get()
            if who == "spark":
                raise StartError("the barrier stage did not start: " + _text(what)) from _exception(
                    what
                )
            if what is None:
                hellos = {task: known for task, known in hellos.items() if known[0] is not who}
                continue
            hello = json.loads(what)
            hellos[hello["task"]] = (who, hello)
        for task in range(tasks):
            channel, hello = hellos[task]
            self.attach(channel, ranks_per_task, hello["name"], hello["host"])
            self._places.append((channel, json.dumps({"first": task == 0}).encode()))

    def attach(self, channel, ranks, name, machine):
        """Gives the next `ranks` ranks to the agent that `channel` reaches. Agents with an equal
        `machine` are on one host. name: the name of the host in messages."""
        near, far = socket.socketpair()
        self._near[channel] = near
        self._far.append(far)
        self._agents.append(
            {"stream": far.fileno(), "name": name, "machine": machine, "ranks": ranks}
        )

    def run(self):
        """Runs the ranks and prints what they write. Raises ProgramError when a rank fails,
        StartError when no rank has run, and HvdError when hvdrun fails."""
        self._start()
        for channel, near in self._near.items():
            threading.Thread(
                target=_pass_on, args=(near, channel), daemon=True, name="hvd-spark-orders"
            ).start()
        for channel, place in self._places:
            try:
                channel.send(place)
            except OSError:
                pass  # the thread that reads the channel sees its end
        self._print()
        self._process.wait()
        self._raise_outcome()

    def _start(self):
        try:
            found = find_hvdrun(self._hvdrun, os.getcwd(), os.environ.get("PATH", os.defpath))
        except FileNotFoundError as error:
            raise StartError("on the driver's machine %s" % error) from None
        outcome, told = os.pipe()
        self._process = subprocess.Popen(
            [found, "--attached"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=own_environment(),
            pass_fds=[told, *(far.fileno() for far in self._far)],
            start_new_session=True,  # Ctrl-C reaches the driver only, which passes it on
        )
        os.close(told)
        for far in self._far:
            far.close()
        description = {
            "agents": self._agents,
            "outcome": told,
            "timestamps": self._timestamps,
            "quoted_lines": TAIL_LINES,
        }
        try:
            with self._process.stdin as pipe:
                pipe.write(json.dumps(description).encode())
        except OSError:
            pass  # hvdrun has ended and printed the reason
        stdout, stderr = (
            _Printer(stream, name) for stream, name in zip(self._streams, ("stdout", "stderr"))
        )
        for file, take in (
            (self._process.stdout, stdout.feed),
            (self._process.stderr, stderr.feed),
            (os.fdopen(outcome, "rb"), self._take_outcome),
        ):
            self._selector.register(file, selectors.EVENT_READ, take)

    def _take_outcome(self, data):
        self._outcome += data

    def _print(self, deadline=None):
        """Prints until hvdrun has closed its output or the deadline, a time of time.monotonic(),
        has passed."""
        while self._selector.get_map():
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            ready = self._selector.select(left)
            if not ready and left == 0.0:
                return
            for key, _ in ready:
                data = os.read(key.fd, _MOST)
                key.data(data)
                if not data:
                    self._selector.unregister(key.fileobj)
                    key.fileobj.close()

    def _raise_outcome(self):
        try:
            outcome = json.loads(self._outcome)
        except ValueError:
            raise HvdError("hvdrun exited %d" % self._process.returncode) from None
        if outcome["code"] == 0:
            return
        rank, what = outcome["rank"], outcome["what"]
        if rank is None:
            raise StartError(what)
        lines, quoted = outcome["lines"], outcome["quoted"]
        whose = "its" if quoted == rank else "rank %d's" % quoted
        what += "\n%s last lines:\n" % whose + "\n".join(lines) if lines else "\nit wrote nothing"
        raise ProgramError(what, rank, None if outcome["lost"] else outcome["code"], lines)

    def interrupt(self):
        """Sends SIGINT to the ranks, through hvdrun, and prints what they still write. Returns when
        hvdrun has ended them."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._print(time.monotonic() + _END_SECONDS)

    def close(self):
        """Closes all channels, so that every agent kills the ranks that it still has."""
        self._closed = True
        for channel in self._channels:
            channel.close()
        for end in (*self._near.values(), *self._far):
            _shut_down(end, socket.SHUT_RDWR)  # wakes up the thread that receives
            end.close()
        if self._process is not None:
            try:
                self._process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        for key in list(self._selector.get_map().values()):
            self._selector.unregister(key.fileobj)
            key.fileobj.close()


def _pass_on(near, channel):
    """Passes hvdrun's messages on to an agent, and closes the channel at their end, which ends the
    agent."""
    try:
        while data := near.recv(_MOST):
            channel.send(data)
    except OSError:
        pass
    channel.close()


def _shut_down(connection, how):
    try:
        connection.shutdown(how)
    except OSError:
        pass


def _text(what):
    """Returns the first line of an error and the last line that names an exception, because Java's
    error texts are pages long."""
    lines = str(what).strip().splitlines() or [repr(what)]
    causes = [line for line in lines[1:] if re.match(r"\w[\w.]*(Error|Exception): ", line)]
    return "; ".join(line[:500] for line in lines[:1] + causes[-1:])


def _exception(what):
    return what if isinstance(what, BaseException) else None
