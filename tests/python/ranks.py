"""Runs test modules on every rank, in the same order, until the first failure: ranks.py MODULE..."""

import itertools
import sys
import unittest


def each(**values):
    """Yields the combinations of named values."""
    for combination in itertools.product(*values.values()):
        yield dict(zip(values, combination))


if __name__ == "__main__":
    try:
        import torch  # noqa: F401
    except ImportError as missing:
        print(f"skipped: needs Python's torch ({missing})")
        sys.exit(77)
    unittest.main(module=None, failfast=True)
