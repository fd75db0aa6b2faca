"""Compares a blocking allreduce over hvd with gloo's and with the mere dispatch of torch.distributed, interleaved.

    PYTHONPATH=build/release/python build/release/bin/hvdrun -np 2 --bind-to none python3 benchmarks/python/all_reduce.py

Gloo's threads may then use all cores. The rows are medians over the rounds, in microseconds. The last two columns compare
the times of one round: the median of that, the least and the most. The same call in C++ is that of
`hvdrun -np 2 --bind-to none hvd_bench allreduce -b 4 -e 4`.
"""

import argparse
import statistics
import time

import torch
import torch.distributed as dist
import torch.testing._internal.distributed.fake_pg  # noqa: F401, registers a backend that does nothing

import hvd.torch as hvd

SIZES = {4: 300, 256: 300, 4 << 10: 300, 16 << 10: 300, 1 << 20: 60, 4 << 20: 30, 16 << 20: 12,
         64 << 20: 8}  # bytes: calls per round


def microseconds(call, calls):
    dist.barrier()
    began = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - began) / calls * 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
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
        print("bytes".rjust(10), *[name.rjust(11) for name in calls], "hvd - fake".rjust(22), "gloo / hvd".rjust(22))
    for size, repeat in SIZES.items():
        tensor = torch.zeros(size // 4)
        times = {name: [] for name in calls}
        for each in range(rounds + 1):
            for name, call in calls.items():
                taken = microseconds(call, repeat)
                if each > 0:  # the first round warms up
                    times[name].append(taken)
        above = [ours - none for ours, none in zip(times["dist, hvd"], times["dist, fake"])]
        ratios = [theirs / ours for theirs, ours in zip(times["dist, gloo"], times["dist, hvd"])]
        if dist.get_rank() == 0:
            print(f"{size:10}", *[f"{statistics.median(t):11.1f}" for t in times.values()],
                  *[f"{statistics.median(v):.1f} [{min(v):.1f} {max(v):.1f}]".rjust(22) for v in (above, ratios)],
                  flush=True)
    hvd.shutdown()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
