"""Starts programs together, ends them together, and leaves none behind."""
import atexit
import contextlib
import ctypes
import dataclasses
import os
import signal
import subprocess
import sys
import time

PR_SET_CHILD_SUBREAPER = 36


class Failed(Exception):
    """Says that a program failed or took too long. The text says which, and what it wrote."""


@dataclasses.dataclass
class Start:
    """One process to start."""

    command: list
    environment: dict = dataclasses.field(default_factory=dict)


def adopt_orphans():
    """Makes processes whose launcher has died children of this process, which then ends them."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants():
    """Returns the ids of all processes below this one, the nearest first."""
    children = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError, IndexError, ValueError):
            with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as file:
                parent = int(file.read().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry))
    found, front = [], [os.getpid()]
    while front:
        front = [child for parent in front for child in children.get(parent, [])]
        found += front
    return found


def end_all(grace=3.0):
    """Ends every descendant. First it asks the launchers, which know how to end their processes.
    Then it kills."""
    for number, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, 10.0)):
        deadline = time.monotonic() + patience
        for pid in descendants():
            with contextlib.suppress(OSError):
                os.kill(pid, number)
        while time.monotonic() < deadline:
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            if not descendants():
                return
            time.sleep(0.02)


def end_with_this():
    """From now on, ends all descendants when this process ends, also when SIGTERM or SIGHUP ends it."""
    def end(number, _):
        adopt_orphans()  # only now, because nobody waits for orphans before
        sys.exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # as nohup sets it
            signal.signal(number, end)
    atexit.register(end_all)


def run(starts, patience, folder):
    """Runs the programs at the same time, in sessions of their own. Their output goes to `folder`.

    Returns their exit statuses. Raises Failed when the time is over. When one fails, the others
    have a few seconds to notice it before they are ended.
    """
    running = []
    try:
        for number, start in enumerate(starts):
            with open(os.path.join(folder, f"output.{number}"), "wb") as output:
                running.append(
                    subprocess.Popen(
                        start.command,
                        env={**os.environ, **start.environment},
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                    )
                )
        deadline = time.monotonic() + patience
        while any(process.poll() is None for process in running):
            if time.monotonic() > deadline:
                raise Failed(f"not over after {patience:g} s{last_words(folder, len(starts))}")
            if any(process.poll() for process in running):
                deadline = min(deadline, time.monotonic() + 10)
            time.sleep(0.01)
        return [process.returncode for process in running]
    finally:
        left = [process for process in running if process.poll() is None]
        for process in left:
            process.terminate()
        deadline = time.monotonic() + 3
        while any(process.poll() is None for process in left) and time.monotonic() < deadline:
            time.sleep(0.02)
        for process in left:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def last_words(folder, count):
    """Returns the end of the output of each of `count` programs, for an error message."""
    text = ""
    for number in range(count):
        with contextlib.suppress(OSError):
            with open(os.path.join(folder, f"output.{number}"), encoding="utf-8",
                      errors="replace") as output:
                lines = output.read().splitlines()[-4:]
            text += "".join(f"\n    {line}" for line in lines)
    return text
