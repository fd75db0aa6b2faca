"""Runs an `hvdrun --remote-agent`, which starts, watches and ends the ranks of a host.

The agent kills all ranks and what they have started as soon as its standard input reaches its end,
whatever the reason. This module passes the agent's messages to the driver's hvdrun unread.
"""

import os
import shutil
import subprocess

from .own_part import as_file

# Spark's processes prove with these secrets who they are; the ranks must not get them.
_SPARKS_OWN = ("PYTHON_WORKER_FACTORY_SECRET", "PYSPARK_GATEWAY_SECRET", "_SPARK_AUTH_SECRET")
_MOST = 1 << 16


def own_environment():
    """Returns this process's environment without Spark's secrets."""
    return {name: value for name, value in os.environ.items() if name not in _SPARKS_OWN}


def find_hvdrun(hvdrun, directory, path):
    """Returns the path of hvdrun. A name with a slash is relative to `directory`; any other name is
    searched for in the folders of `path`, as in PATH. Raises FileNotFoundError, which names it."""
    name = os.path.join(directory, hvdrun) if os.sep in hvdrun else hvdrun
    found = shutil.which(name, path=path)
    if found is None:
        raise FileNotFoundError(
            "%r was not found, or cannot be executed; hvd has to be installed here" % hvdrun
        )
    return found


def added_files():
    """Returns the folder of the files that SparkContext.addFile has distributed, where a program is
    found by its name alone."""
    from pyspark import SparkFiles

    # On executors Spark names it relative to the working directory of this process, and ranks may
    # run in another.
    return os.path.abspath(SparkFiles.getRootDirectory())


class Agent:
    """Has the members send, receive and close of a Link, but they pass any bytes and not whole
    messages. One thread sends and one thread receives."""

    def __init__(self, hvdrun, directory, path, own, descriptors):
        """path: the folders, as in PATH, in which hvdrun and the ranks' program are searched for.
        own: the result of own_part. descriptors: the descriptors that the ranks inherit. Raises
        OSError, which names hvdrun."""
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
                start_new_session=True,  # Ctrl-C reaches the driver only, which ends the ranks
            )
        finally:
            os.close(own_file)

    def send(self, data):
        """Raises OSError when the agent has ended."""
        try:
            self._process.stdin.write(data)
            self._process.stdin.flush()
        except ValueError as error:  # another thread has closed the pipe
            raise BrokenPipeError(str(error)) from None

    def receive(self):
        """Waits for the agent's next output and returns some bytes of it, or None, once, when the
        agent has ended."""
        data = os.read(self._process.stdout.fileno(), _MOST)
        if data:
            return data
        self._process.stdout.close()
        return None

    def close(self):
        """Makes the agent kill the processes that still run, and returns when the agent has
        ended."""
        try:
            self._process.stdin.close()
        except OSError:
            pass
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
