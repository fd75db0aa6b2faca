"""Runs a peer of PyTorch over every size in turn, and writes rows with hvd_bench's keys.

Like the C++ driver beside it, it follows the rules of hvd_bench. Each peer is a `Library`.
"""
import abc
import argparse
import json
import math
import time

import torch

TOTAL, MOST_BUFFERS, LINE = 64 << 20, 65_536, 64
FEWEST, MOST = 5, 20_000


class Library(abc.ABC):
    """The functions of a peer on one rank. All but the first three are collective."""

    @abc.abstractmethod
    def name(self):
        """Returns the name with the version."""

    @abc.abstractmethod
    def rank(self): ...

    @abc.abstractmethod
    def ranks(self): ...

    @abc.abstractmethod
    def allreduce(self, tensor):
        """Sums over all ranks, in place."""

    @abc.abstractmethod
    def largest(self, tensor):
        """Returns the largest value over all ranks, element by element."""

    @abc.abstractmethod
    def barrier(self): ...


def size(text):
    units = {"K": 10, "M": 20, "G": 30}
    unit = units.get(text[-1].upper())
    return int(text) if unit is None else int(text[:-1]) << unit


class Bench:
    """The buffers of one size, used in turn. Together they have 64 MiB, so that the data is not
    always in the caches."""

    def __init__(self, library, count):
        bytes_each = 4 * count
        buffers = min(max(TOTAL // max(bytes_each, LINE), 1), MOST_BUFFERS)
        stride = (bytes_each + LINE - 1) // LINE * LINE // 4
        memory = torch.zeros(stride * buffers)
        self.library = library
        self.views = [memory[i * stride : i * stride + count] for i in range(buffers)]
        self.turn = 0

    def run(self):
        data = self.views[self.turn % len(self.views)]
        self.turn += 1
        began = time.perf_counter()
        self.library.allreduce(data)
        return 1e6 * (time.perf_counter() - began)

    def check(self):
        """Returns the number of wrong elements on this rank."""
        data = self.views[0]
        index = torch.arange(data.numel())
        expected = torch.zeros_like(data)
        for rank in range(self.library.ranks()):
            expected += ((index + rank) % 3 + 1).to(data.dtype)
        data.copy_((index + self.library.rank()) % 3 + 1)
        self.library.allreduce(data)
        wrong = int((data != expected).sum())
        data.zero_()
        return wrong


def slowest(library, times):
    return library.largest(torch.tensor(times, dtype=torch.float64)).tolist()


def measure(library, options, bytes_asked):
    count = max(bytes_asked // 4, 1)
    bench = Bench(library, count)
    wrong = bench.check()
    trial = slowest(library, [min(bench.run() for _ in range(options.warmup))])[0]
    iterations = options.iters
    if iterations == 0:
        iterations = min(max(int(1e6 * options.seconds / trial), FEWEST), MOST)
    library.barrier()
    times = sorted(slowest(library, [bench.run() for _ in range(iterations)]))
    wrong = torch.tensor([wrong + bench.check()])
    library.allreduce(wrong)

    def percentile(share):
        return times[max(math.ceil(share * len(times)), 1) - 1]

    ranks = library.ranks()
    algbw = 4 * count / percentile(0.50) / 1e3
    return {
        "op": "allreduce",
        "bytes": 4 * count,
        "count": count,
        "dtype": "f32",
        "redop": "sum",
        "backend": library.name(),
        "ranks": ranks,
        "p50_us": percentile(0.50),
        "p99_us": percentile(0.99),
        "algbw_gbs": algbw,
        "busbw_gbs": algbw * 2 * (ranks - 1) / ranks,
        "wrong": int(wrong),
    }


def options_of(description):
    """Returns the options that every peer of benchmarks/compare has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("-b", "--begin", type=size, default=4, help="smallest size in bytes")
    parser.add_argument("-e", "--end", type=size, default=64 << 20, help="largest size in bytes")
    parser.add_argument("-f", "--factor", type=int, default=4, help="from one size to the next")
    parser.add_argument("--iters", type=int, default=0, help="per size; 0: what --seconds allows")
    parser.add_argument("--warmup", type=int, default=3, help="iterations before those")
    parser.add_argument("--seconds", type=float, default=0.5, help="per size")
    parser.add_argument("--json", help="rank 0 writes the rows to this file")
    return parser.parse_args()


def run(library, options):
    """Measures all sizes. Rank 0 writes the rows. Returns True when all results were right."""
    rows = []
    bytes_now = options.begin
    while bytes_now <= options.end:
        rows.append(measure(library, options, bytes_now))
        bytes_now *= options.factor
    if library.rank() == 0:
        text = json.dumps(rows, indent=2) + "\n"
        if options.json:
            with open(options.json, "w", encoding="utf-8") as file:
                file.write(text)
        else:
            print(text, end="")
    library.barrier()
    return not any(row["wrong"] for row in rows)
