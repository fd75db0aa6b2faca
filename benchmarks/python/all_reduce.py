"""Compares a blocking allreduce over hvd with gloo's and with the mere dispatch of torch.distributed, interleaved.

    PYTHONPATH=build/release/python build/release/bin/hvdrun -np 2 python3 benchmarks/python/all_reduce.py
"""

import statistics
import time

import torch
import torch.distributed as dist
import torch.testing._internal.distributed.fake_pg  # noqa: F401, registers a backend that does nothing

import hvd.torch as hvd

SIZES = {4: 300, 16 << 10: 300, 1 << 20: 60, 64 << 20: 8}  # bytes: calls per round
ROUNDS = 7


def microseconds(call, calls):
    dist.barrier()
    began = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - began) / calls * 1e6


def main():
    torch.set_num_threads(1)
    dist.init_process_group("hvd")
    hvd.init()
    gloo = dist.new_group(backend="gloo")
    fake = dist.new_group(backend="fake")
    calls = {
        "hvd.torch": lambda: hvd.allreduce_(tensor, op=hvd.Sum, name=f"of {size}"),
        "dist, hvd": lambda: dist.all_reduce(tensor),
        "dist, gloo": lambda: dist.all_reduce(tensor, group=gloo),
        "dist, fake": lambda: dist.all_reduce(tensor, group=fake),
    }
    if dist.get_rank() == 0:
        print("bytes".rjust(10), *[name.rjust(11) for name in calls], "gloo / hvd  us; least and most in brackets")
    for size, repeat in SIZES.items():
        tensor = torch.zeros(size // 4)
        times = {name: [] for name in calls}
        for each in range(ROUNDS + 1):
            for name, call in calls.items():
                taken = microseconds(call, repeat)
                if each > 0:  # the first round warms up
                    times[name].append(taken)
        if dist.get_rank() == 0:
            ratios = sorted(g / h for g, h in zip(times["dist, gloo"], times["dist, hvd"]))
            print(f"{size:10}", *[f"{statistics.median(t):11.1f}" for t in times.values()],
                  f"{statistics.median(ratios):10.1f} [{ratios[0]:.1f} {ratios[-1]:.1f}]",
                  *[f"[{min(t):.1f} {max(t):.1f}]" for t in times.values()], flush=True)
    hvd.shutdown()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
