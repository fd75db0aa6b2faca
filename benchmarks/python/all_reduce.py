"""Compares dist.all_reduce over hvd with gloo, interleaved, and prints the medians.

    PYTHONPATH=build/release/python hvdrun -np 2 python benchmarks/python/all_reduce.py
"""

import statistics
import time

import torch
import torch.distributed as dist

import hvd.torch

SIZES = {4: 300, 16 << 10: 300, 1 << 20: 60, 64 << 20: 8}  # bytes: calls per round
ROUNDS = 7


def microseconds_per_call(tensor, group, calls):
    dist.barrier(group)
    began = time.perf_counter()
    for _ in range(calls):
        dist.all_reduce(tensor, group=group)
    return (time.perf_counter() - began) / calls * 1e6


def main():
    torch.set_num_threads(1)
    dist.init_process_group("hvd")
    groups = {"hvd": dist.group.WORLD, "gloo": dist.new_group(backend="gloo")}
    if dist.get_rank() == 0:
        print(f"{'bytes':>10} {'hvd us':>10} {'gloo us':>10} {'gloo/hvd':>9}")
    for size, calls in SIZES.items():
        tensor = torch.zeros(size // 4)
        times = {name: [] for name in groups}
        for each in range(ROUNDS + 1):
            for name, group in groups.items():
                taken = microseconds_per_call(tensor, group, calls)
                if each > 0:  # the first round warms up
                    times[name].append(taken)
        ours, theirs = (statistics.median(times[name]) for name in groups)
        if dist.get_rank() == 0:
            print(f"{size:>10} {ours:>10.1f} {theirs:>10.1f} {theirs / ours:>9.1f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
