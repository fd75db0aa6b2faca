#!/usr/bin/env python3
"""Measures torch.distributed's allreduce over gloo, in place, by the rules of hvd_bench.

It is one process of several. RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT say which, as torchrun
sets them. benchmarks/compare starts all of them. The exit status is 0, or 1 when a result was
wrong.
"""
import datetime
import sys

import torch
import torch.distributed as dist

sys.dont_write_bytecode = True
from driver import torch_driver  # noqa: E402


class C10d(torch_driver.Library):
    def name(self):
        return f"torch {torch.__version__} gloo"

    def rank(self):
        return dist.get_rank()

    def ranks(self):
        return dist.get_world_size()

    def allreduce(self, tensor):
        dist.all_reduce(tensor)

    def largest(self, tensor):
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
        return tensor

    def barrier(self):
        dist.barrier()


def main():
    options = torch_driver.options_of(__doc__.splitlines()[0])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=120))
    right = torch_driver.run(C10d(), options)
    dist.destroy_process_group()
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
