"""A running `hvdrun --remote-agent`, the process that starts, watches and ends the ranks of a host.

Its standard input is the life line: when that ends, for whatever reason, it kills all ranks and
what they have started. What it says is between it and the driver's hvdrun.
"""

import os
import shutil
import subprocess

from .own_part import as_file

# Secrets by which Spark knows its own processes: nothing for a program that it runs.
_SPARKS_OWN = ("PYTHON_WORKER_FACTORY_SECRET", "PYSPARK_GATEWAY_SECRET", "_SPARK_AUTH_SECRET")
_MOST = 1 << 16


def own_environment():
    """This process's, as a program may see it."""
    return {name: value for name, value in os.environ.items() if name not in _SPARKS_OWN}


def find_hvdrun(hvdrun, directory, path):
    """Where it is; path: of folders. Raises FileNotFoundError, which names it."""
    name = os.path.join(directory, hvdrun) if os.sep in hvdrun else hvdrun
    found = shutil.which(name, path=path)
    if found is None:
        raise FileNotFoundError(
            "%r was not found, or cannot be executed; hvd has to be installed here" % hvdrun
        )
    return found


class Agent:
    """send, receive and close as a Link has them, for any bytes. One thread sends, one receives."""

    def __init__(self, hvdrun, directory, path, own, descriptors):
        """path: of folders, where hvdrun and the ranks' program are looked for. own: what own_part
        gave. descriptors: that the ranks inherit. Raises OSError, saying which hvdrun it is
        about."""
        found = find_hvdrun(hvdrun, directory, path)
        environment = own_environment()
        environment["PATH"] = path
        own_file = as_file(own)
        try:
            self._process = subprocess.Popen(
                [found, "--remote-agent", str(own_file)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
                pass_fds=[own_file, *descriptors],
                start_new_session=True,  # Ctrl-C is for the driver, which then ends the ranks
            )
        finally:
            os.close(own_file)

    def send(self, data):
        """Raises OSError when the agent has ended."""
        try:
            self._process.stdin.write(data)
            self._process.stdin.flush()
        except ValueError as error:  # closed meanwhile
            raise BrokenPipeError(str(error)) from None

    def receive(self):
        """What it says next, some bytes; None, once, when the agent has ended."""
        data = os.read(self._process.stdout.fileno(), _MOST)
        if data:
            return data
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
