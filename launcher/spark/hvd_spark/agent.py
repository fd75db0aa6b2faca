"""A running `hvdrun --remote-agent`, the process that starts, watches and ends the ranks of a host.

Its standard input is the life line: when that ends, for whatever reason, it kills all ranks and
what they have started.
"""

import os
import select
import shutil
import struct
import subprocess
import time

from . import frames
from .version import VERSION

_GREETING = b"hvdrun-agent "
_GREETING_SECONDS = 20
_MAX_GREETING = 64 << 10
# Secrets by which Spark knows its own processes: nothing for a program that it runs.
_SPARKS_OWN = ("PYTHON_WORKER_FACTORY_SECRET", "PYSPARK_GATEWAY_SECRET", "_SPARK_AUTH_SECRET")


def own_environment():
    """This process's, as a program may see it."""
    return {name: value for name, value in os.environ.items() if name not in _SPARKS_OWN}


class Agent:
    """send, receive and close as a Link has them. One thread sends, one receives."""

    def __init__(self, hvdrun, directory, path, descriptors):
        """path: of folders, where hvdrun and the ranks' program are looked for. descriptors: that
        the ranks inherit. Raises OSError and RuntimeError, saying which hvdrun it is about."""
        name = os.path.join(directory, hvdrun) if os.sep in hvdrun else hvdrun
        found = shutil.which(name, path=path)
        if found is None:
            raise FileNotFoundError(
                "%r was not found, or cannot be executed; hvd has to be installed here" % hvdrun
            )
        environment = own_environment()
        environment["PATH"] = path
        self._process = subprocess.Popen(
            [found, "--remote-agent"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            pass_fds=descriptors,
            start_new_session=True,  # Ctrl-C is for the driver, which then ends the ranks
        )
        try:
            version = self._greeting(found)
            if version != VERSION:
                raise RuntimeError(
                    "%s is of version %s, hvd_spark of %s" % (found, version, VERSION)
                )
        except BaseException:
            self.close()
            self._process.stdout.close()
            raise

    def _greeting(self, name):
        heard = b""
        deadline = time.monotonic() + _GREETING_SECONDS
        pipe = self._process.stdout.fileno()
        while not heard.endswith(b"\n") and len(heard) < _MAX_GREETING:
            if not select.select([pipe], [], [], max(0, deadline - time.monotonic()))[0]:
                raise RuntimeError("%s did not answer within %d s" % (name, _GREETING_SECONDS))
            byte = os.read(pipe, 1)  # frames may follow at once
            if not byte:
                break
            heard += byte
        if not (heard.startswith(_GREETING) and heard.endswith(b"\n")):
            raise RuntimeError("%s is no hvdrun of this version" % name)
        return heard[len(_GREETING) : -1].decode("ascii", "replace")

    def send(self, frame):
        """Raises OSError when the agent has ended."""
        try:
            self._process.stdin.write(struct.pack("<I", len(frame)) + frame)
            self._process.stdin.flush()
        except ValueError as error:  # closed meanwhile
            raise BrokenPipeError(str(error)) from None

    def receive(self):
        """The next frame; None, once, when the agent has ended."""
        size = self._process.stdout.read(4)
        length = struct.unpack("<I", size)[0] if len(size) == 4 else frames.MAX_FRAME + 1
        if length <= frames.MAX_FRAME:
            frame = self._process.stdout.read(length)
            if len(frame) == length:
                return frame
        self._process.stdout.close()
        return None

    def close(self):
        """The agent kills what still runs, and ends. Returns when it has."""
        try:
            self._process.stdin.close()
        except OSError:
            pass
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
