"""Removes folders of a Store when the driver ends without having removed them itself, even by
SIGKILL. A child process does it; it reads a pipe whose write end only the driver holds."""

import json
import os
import subprocess
import sys

from .store import Store

_DONE = b"done\n"


class Keeper:
    def __init__(self, store, folders):
        here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        path = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": path},
            cwd="/",
            start_new_session=True,  # Ctrl-C reaches the driver only
        )
        # The options may hold credentials, so they go through the pipe and not into the arguments.
        self._tell(json.dumps([store.uri, store.storage_options, folders]).encode() + b"\n")

    def close(self):
        """Ends the child. It then removes nothing."""
        self._tell(_DONE)
        self._process.stdin.close()
        self._process.wait()

    def _tell(self, line):
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
        except OSError:
            pass  # the child was killed, and the folders are no longer watched


def _main():
    told = sys.stdin.buffer.readline()
    if not told.endswith(b"\n") or sys.stdin.buffer.readline() == _DONE:
        return
    uri, options, folders = json.loads(told)
    for folder in folders:
        Store(uri, True, options).remove(folder)


if __name__ == "__main__":
    _main()
