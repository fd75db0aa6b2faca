#!/usr/bin/env python3
"""Runs the cases of `hvd_bench negotiation` with torch.distributed over gloo, in place.

It is one process of several. RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT say which, as torchrun
sets them. benchmarks/negotiation starts all of them.
"""
import argparse
import datetime
import json
import math
import time

import torch
import torch.distributed as dist

SETTLE = 5
FEWEST, MOST = 10, 20_000


def resnet50_gradients():
    """Returns the number of elements of each gradient, in the order of the backward pass. The list
    is the same as hvd_bench's."""
    counts = [64 * 3 * 7 * 7, 64, 64]

    def convolution(inputs, outputs, kernel):
        counts.extend([inputs * outputs * kernel * kernel, outputs, outputs])

    inputs = 64
    for blocks, width in ((3, 64), (4, 128), (6, 256), (3, 512)):
        for block in range(blocks):
            convolution(inputs, width, 1)
            convolution(width, width, 3)
            convolution(width, 4 * width, 1)
            if block == 0:
                convolution(inputs, 4 * width, 1)
            inputs = 4 * width
    counts.extend([1000 * inputs, 1000])
    return counts[::-1]


class Workload:
    """The tensors of one step. With `fused` they are copied to one tensor, which is sent and copied
    back."""

    def __init__(self, counts, fused):
        self.tensors = [torch.zeros(count) for count in counts]
        self.flat = torch.zeros(sum(counts)) if fused else None
        self.views = list(self.flat.split(counts)) if fused else []

    def step(self):
        if self.flat is not None:
            torch._foreach_copy_(self.views, self.tensors)
            dist.all_reduce(self.flat)
            torch._foreach_copy_(self.tensors, self.views)
        elif len(self.tensors) == 1:
            dist.all_reduce(self.tensors[0])
        else:
            for work in [dist.all_reduce(tensor, async_op=True) for tensor in self.tensors]:
                work.wait()


def slowest(times):
    times = torch.tensor(times, dtype=torch.float64)
    dist.all_reduce(times, op=dist.ReduceOp.MAX)
    return times.tolist()


def timed(workload):
    began = time.perf_counter()
    workload.step()
    return 1e6 * (time.perf_counter() - began)


def measure(options, name, counts, fused):
    workload = Workload(counts, fused)
    for _ in range(SETTLE):
        workload.step()
    iterations = options.iters
    if iterations == 0:
        trial = slowest([sum(timed(workload) for _ in range(3)) / 3])[0]
        iterations = min(max(int(1e6 * options.seconds / trial), FEWEST), MOST)
    times = sorted(slowest([timed(workload) for _ in range(iterations)]))

    def percentile(share):
        return times[max(math.ceil(share * len(times)), 1) - 1]

    return {
        "case": name,
        "ranks": dist.get_world_size(),
        "tensors": len(counts),
        "bytes": 4 * sum(counts),
        "fused": fused,
        "p50_us": percentile(0.50),
        "p99_us": percentile(0.99),
    }


parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--iters", type=int, default=0, help="per case; 0: what fits into --seconds")
parser.add_argument("--seconds", type=float, default=0.5)
parser.add_argument("--json", help="rank 0 writes the rows to this file")
options = parser.parse_args()

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=120))
gradients = resnet50_gradients()
small = [256] * len(gradients)
rows = [measure(options, "blocking", [1], False)]
for fused in (False, True):
    rows.append(measure(options, "many small", small, fused))
    rows.append(measure(options, "resnet50", gradients, fused))
rows.append(measure(options, "one tensor", [sum(gradients)], False))
if dist.get_rank() == 0:
    text = json.dumps(rows, indent=2)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            file.write(text + "\n")
    else:
        print(text)
dist.barrier()
dist.destroy_process_group()
