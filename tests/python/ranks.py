"""Runs test modules on every rank, in the same order, until the first failure: ranks.py MODULE..."""

import contextlib
import datetime
import faulthandler
import itertools
import sys
import time
import unittest

try:
    from torch import distributed
except ImportError as missing:
    print(f"skipped: needs Python's torch ({missing})")
    sys.exit(77)


def each(**values):
    """Yields the combinations of named values."""
    for combination in itertools.product(*values.values()):
        yield dict(zip(values, combination))


def init_process_group():
    """Makes hvd the default group, once: a second one could find the addresses of the first in its store, as with gloo."""
    if not distributed.is_initialized():
        distributed.init_process_group("hvd", timeout=datetime.timedelta(seconds=120))
    return distributed.get_rank(), distributed.get_world_size()


@contextlib.contextmanager
def deadline(seconds=60):
    """Ends the process when the time is over, also where a thread waits and holds Python's lock."""
    faulthandler.dump_traceback_later(seconds, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def wait_until(condition, seconds=60):
    """Waits without calling anything but the condition."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"{condition} did not hold within {seconds} s")
        time.sleep(0.001)


def is_shared(tensor):
    """Whether a tensor lies in the memory that the ranks of a host share."""
    address = tensor.data_ptr()
    with open("/proc/self/maps", encoding="ascii") as maps:
        for line in maps:
            begin, end = (int(bound, 16) for bound in line.split()[0].split("-"))
            if begin <= address < end:
                return "memfd:hvd-host" in line
    return False


if __name__ == "__main__":
    tests = unittest.main(module=None, failfast=True, exit=False)
    if tests.result.wasSuccessful() and distributed.is_initialized():
        distributed.destroy_process_group()
    sys.exit(not tests.result.wasSuccessful())
