"""Removes folders of a Store when the driver ends without having done so itself, even by SIGKILL: a
child that listens to a pipe whose other end only the driver has."""

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
            start_new_session=True,  # Ctrl-C is for the driver
        )
        # Through the pipe, because the options may be credentials.
        self._tell(json.dumps([store.uri, store.storage_options, folders]).encode() + b"\n")

    def close(self):
        """There is nothing left to do."""
        self._tell(_DONE)
        self._process.stdin.close()
        self._process.wait()

    def _tell(self, line):
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
        except OSError:
            pass  # it was killed: then nobody keeps watch


def _main():
    told = sys.stdin.buffer.readline()
    if not told.endswith(b"\n") or sys.stdin.buffer.readline() == _DONE:
        return
    uri, options, folders = json.loads(told)
    for folder in folders:
        Store(uri, True, options).remove(folder)


if __name__ == "__main__":
    _main()
