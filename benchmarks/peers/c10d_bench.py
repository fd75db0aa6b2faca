#!/usr/bin/env python3
"""torch.distributed's allreduce over gloo, in place, measured by the rules of hvd_bench.

One process of several: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT say which, as torchrun sets
them. benchmarks/compare starts them. Exit status: 0; 1 when a result was wrong.
"""
import argparse
import datetime
import json
import math
import sys
import time

import torch
import torch.distributed as dist

TOTAL, MOST_BUFFERS, LINE = 64 << 20, 65_536, 64
FEWEST, MOST = 5, 20_000


def size(text):
    units = {"K": 10, "M": 20, "G": 30}
    unit = units.get(text[-1].upper())
    return int(text) if unit is None else int(text[:-1]) << unit


def slowest(times):
    times = torch.tensor(times, dtype=torch.float64)
    dist.all_reduce(times, op=dist.ReduceOp.MAX)
    return times.tolist()


class Bench:
    """The buffers of one size, used in turn: 64 MiB together, so that caches do not flatter."""

    def __init__(self, count):
        bytes_each = 4 * count
        buffers = min(max(TOTAL // max(bytes_each, LINE), 1), MOST_BUFFERS)
        stride = (bytes_each + LINE - 1) // LINE * LINE // 4
        memory = torch.zeros(stride * buffers)
        self.views = [memory[i * stride : i * stride + count] for i in range(buffers)]
        self.turn = 0

    def run(self):
        data = self.views[self.turn % len(self.views)]
        self.turn += 1
        began = time.perf_counter()
        dist.all_reduce(data)
        return 1e6 * (time.perf_counter() - began)

    def check(self):
        """Wrong elements on this rank."""
        data = self.views[0]
        index = torch.arange(data.numel())
        expected = torch.zeros_like(data)
        for rank in range(dist.get_world_size()):
            expected += ((index + rank) % 3 + 1).to(data.dtype)
        data.copy_((index + dist.get_rank()) % 3 + 1)
        dist.all_reduce(data)
        wrong = int((data != expected).sum())
        data.zero_()
        return wrong


def measure(options, bytes_asked):
    count = max(bytes_asked // 4, 1)
    bench = Bench(count)
    wrong = bench.check()
    trial = slowest([min(bench.run() for _ in range(options.warmup))])[0]
    iterations = options.iters
    if iterations == 0:
        iterations = min(max(int(1e6 * options.seconds / trial), FEWEST), MOST)
    dist.barrier()
    times = sorted(slowest([bench.run() for _ in range(iterations)]))
    wrong = torch.tensor([wrong + bench.check()])
    dist.all_reduce(wrong)

    def percentile(share):
        return times[max(math.ceil(share * len(times)), 1) - 1]

    ranks = dist.get_world_size()
    algbw = 4 * count / percentile(0.50) / 1e3
    return {
        "op": "allreduce",
        "bytes": 4 * count,
        "count": count,
        "dtype": "f32",
        "redop": "sum",
        "backend": f"torch {torch.__version__} gloo",
        "ranks": ranks,
        "p50_us": percentile(0.50),
        "p99_us": percentile(0.99),
        "algbw_gbs": algbw,
        "busbw_gbs": algbw * 2 * (ranks - 1) / ranks,
        "wrong": int(wrong),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-b", "--begin", type=size, default=4, help="smallest size in bytes")
    parser.add_argument("-e", "--end", type=size, default=64 << 20, help="largest size in bytes")
    parser.add_argument("-f", "--factor", type=int, default=4, help="from one size to the next")
    parser.add_argument("--iters", type=int, default=0, help="per size; 0: what --seconds allows")
    parser.add_argument("--warmup", type=int, default=3, help="iterations before those")
    parser.add_argument("--seconds", type=float, default=0.5, help="per size")
    parser.add_argument("--json", help="rank 0 writes the rows to this file")
    options = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=120))
    rows = []
    bytes_now = options.begin
    while bytes_now <= options.end:
        rows.append(measure(options, bytes_now))
        bytes_now *= options.factor
    if dist.get_rank() == 0:
        text = json.dumps(rows, indent=2) + "\n"
        if options.json:
            with open(options.json, "w", encoding="utf-8") as file:
                file.write(text)
        else:
            print(text, end="")
    dist.barrier()
    dist.destroy_process_group()
    return 1 if any(row["wrong"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
