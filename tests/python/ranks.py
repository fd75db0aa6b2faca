"""Runs test modules on every rank, in the same order, until the first failure: ranks.py MODULE..."""

import itertools
import sys
import unittest


def each(**values):
    """Yields the combinations of named values."""
    for combination in itertools.product(*values.values()):
        yield dict(zip(values, combination))


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
    try:
        import torch  # noqa: F401
    except ImportError as missing:
        print(f"skipped: needs Python's torch ({missing})")
        sys.exit(77)
    unittest.main(module=None, failfast=True)
