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
import io
import multiprocessing
import os
import re
import sys
import tempfile
import unittest

BACKENDS = ("gloo", "hvd")
FORK = multiprocessing.get_context("fork")
ROOM = 45  # seconds for a case


class _Opened(str):
    """The name of a backend, which also passes where a test asks for gloo."""

    def __eq__(self, other):
        return str.__eq__(self, other) is True or other == "gloo"

    def __ne__(self, other):
        return not self == other

    __hash__ = str.__hash__


def load(ranks):
    """Returns the class of the cases and torch's module of it, which reads the variables once for its skips."""
    os.environ.update(BACKEND="gloo", WORLD_SIZE=str(ranks), DISTRIBUTED_TESTS_DEFAULT_TIMEOUT=str(ROOM))
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


def run(name, backend):
    """Returns "pass", "skip" or "fail", and what the case said."""
    cases, module = loaded
    os.environ["BACKEND"] = backend
    module.BACKEND = _Opened(backend)
    result = unittest.TestResult()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        os.environ["TEMP_DIR"] = folder
        cases(name).run(result)
    for kind, said in (("fail", result.errors + result.failures), ("skip", result.skipped)):
        if said:
            return kind, said[0][1]
    return "pass", ""


def compare(name):
    return [run(name, backend) for backend in BACKENDS]


def run_all(ranks, options):
    """Exits with 1 where hvd does worse than gloo."""
    global loaded
    loaded = load(ranks)  # before the processes that run cases are forked
    names = [name for name in unittest.TestLoader().getTestCaseNames(loaded[0]) if re.search(options.cases, name)]
    counts = [collections.Counter() for _ in BACKENDS]
    worse = 0
    with concurrent.futures.ProcessPoolExecutor(options.jobs, mp_context=FORK) as pool:
        for name, kinds in zip(names, pool.map(compare, names)):
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
    sys.exit(1 if worse else 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 3, 4])
    parser.add_argument("--cases", default="", help="a regular expression that names must contain")
    parser.add_argument("--jobs", type=int, default=4, help="cases at a time")
    parser.add_argument("--verbose", action="store_true", help="also show why hvd fails")
    options = parser.parse_args()
    worse = 0
    for ranks in options.ranks:  # each in a process of its own, because torch's module is for one number
        of_number = FORK.Process(target=run_all, args=(ranks, options))
        of_number.start()
        of_number.join()
        worse = max(worse, of_number.exitcode)
    return worse


if __name__ == "__main__":
    sys.exit(main())
