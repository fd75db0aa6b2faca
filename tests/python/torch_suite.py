"""Runs PyTorch's own tests of torch.distributed over gloo and over hvd, and lists where hvd does worse.

    PYTHONPATH=build/release/python python3 tests/python/torch_suite.py [--ranks 2 3 4] [--cases REGEX]

The tests are torch.testing._internal.distributed.distributed_test, which comes with torch and needs the package
expecttest. Tests of gloo only are opened for hvd. Ranks are forked, since importing torch takes seconds, and several
cases run at a time, since they mostly wait.
"""

import argparse
import collections
import concurrent.futures
import contextlib
import functools
import io
import multiprocessing
import os
import re
import sys
import tempfile
import unittest

BACKENDS = ("gloo", "hvd")
ROOM = 45  # seconds for a case


class _Opened(str):
    """The name of a backend, which also passes where a test asks for gloo."""

    def __eq__(self, other):
        return str.__eq__(self, other) is True or other == "gloo"

    def __ne__(self, other):
        return not self == other

    __hash__ = str.__hash__


def load():
    """Returns the class of the cases and torch's module of it. It reads BACKEND once for its skips, as if that were gloo."""
    os.environ.update(BACKEND="gloo", WORLD_SIZE="2", DISTRIBUTED_TESTS_DEFAULT_TIMEOUT=str(ROOM))
    import torch
    from torch.testing._internal.distributed import distributed_test

    import hvd.torch  # noqa: F401, registers the backend

    for supported in (distributed_test.PROFILING_SUPPORTED_BACKENDS,
                      distributed_test.SEND_RECV_PROFILING_SUPPORTED_BACKENDS):
        supported.append("hvd")

    class Cases(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

    return Cases, distributed_test


def run(name, backend, ranks):
    """Returns "pass", "skip" or "fail", and what the case said."""
    os.environ.update(BACKEND=backend, WORLD_SIZE=str(ranks))
    cases, module = loaded
    module.BACKEND = _Opened(backend)
    result = unittest.TestResult()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        os.environ["TEMP_DIR"] = folder
        cases(name).run(result)
    for kind, said in (("fail", result.errors + result.failures), ("skip", result.skipped)):
        if said:
            return kind, said[0][1]
    return "pass", ""


def compare(ranks, name):
    return [run(name, backend, ranks) for backend in BACKENDS]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 3, 4])
    parser.add_argument("--cases", default="", help="a regular expression that names must contain")
    parser.add_argument("--jobs", type=int, default=4, help="cases at a time")
    parser.add_argument("--verbose", action="store_true", help="also show why hvd fails")
    options = parser.parse_args()
    names = [name for name in unittest.TestLoader().getTestCaseNames(loaded[0]) if re.search(options.cases, name)]
    forked = multiprocessing.get_context("fork")
    worse = 0
    for ranks in options.ranks:
        counts = [collections.Counter() for _ in BACKENDS]
        with concurrent.futures.ProcessPoolExecutor(options.jobs, mp_context=forked) as pool:
            ends = pool.map(functools.partial(compare, ranks), names)
            for name, kinds in zip(names, ends):
                for counter, (kind, _) in zip(counts, kinds):
                    counter[kind] += 1
                (theirs, _), (ours, said) = kinds
                if theirs == "pass" != ours:
                    worse += 1
                    print(f"{ranks} ranks: {name}: gloo passes, hvd: {ours}", flush=True)
                    if options.verbose:
                        print(said, flush=True)
        for backend, counter in zip(BACKENDS, counts):
            print(f"{ranks} ranks, {backend}: {counter['pass']} pass, {counter['skip']} are skipped, "
                  f"{counter['fail']} fail", flush=True)
    return 1 if worse else 0


if __name__ == "__main__":
    loaded = load()  # before the processes that run cases are forked
    sys.exit(main())
