#!/usr/bin/env python3
"""Measures Horovod's allreduce of PyTorch tensors, in place, by the rules of hvd_bench.

horovodrun starts it, as benchmarks/compare does. The exit status is 0, or 1 when a result was
wrong.
"""
import sys

import horovod
import horovod.torch as hvd
import torch

sys.dont_write_bytecode = True
from driver import torch_driver  # noqa: E402


class Horovod(torch_driver.Library):
    def name(self):
        engine = "MPI" if hvd.mpi_enabled() else "gloo"
        return f"Horovod {horovod.__version__} {engine}, torch {torch.__version__}"

    def rank(self):
        return hvd.rank()

    def ranks(self):
        return hvd.size()

    def allreduce(self, tensor):
        # The name is the same each time, so that Horovod finds it in its cache of responses.
        hvd.allreduce_(tensor, op=hvd.Sum, name=f"sum.{tensor.dtype}.{tensor.numel()}")

    def largest(self, tensor):
        return hvd.allgather(tensor.unsqueeze(0), name="times").max(0).values

    def barrier(self):
        hvd.barrier()


def main():
    options = torch_driver.options_of(__doc__.splitlines()[0])
    torch.set_num_threads(1)
    hvd.init()
    right = torch_driver.run(Horovod(), options)
    hvd.shutdown()
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
