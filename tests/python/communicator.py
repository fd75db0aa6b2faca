"""Runs under mpirun: hvd.init takes communicators of mpi4py, and lists of ranks as MPI numbers them."""

import sys

try:
    import torch
    from mpi4py import MPI
except ImportError as missing:
    print(f"skipped: needs Python's torch and mpi4py ({missing})")
    sys.exit(77)

import hvd.torch as hvd

world = MPI.COMM_WORLD
last = world.Get_size() - 1


def check(comm, ranks):
    hvd.init(comm)
    expected = (ranks.index(world.Get_rank()), len(ranks), sum(ranks))
    found = (hvd.rank(), hvd.size(), int(hvd.allreduce(torch.tensor(world.Get_rank()), op=hvd.Sum)))
    hvd.shutdown()
    if found != expected:
        sys.exit(f"rank {world.Get_rank()}, ranks {ranks}: {found} is not {expected}")


everybody = list(range(last + 1))
parts = [everybody[1:], [0]]
mine = next(part for part in parts if world.Get_rank() in part)
check(world, everybody)
check(mine, mine)
# The communicator numbers its ranks backwards.
backwards = world.Split(color=min(world.Get_rank(), 1), key=-world.Get_rank())
check(backwards, mine[::-1])
check(None, everybody)

process_set = hvd.ProcessSet(backwards)
hvd.init(world, process_sets=[process_set])
total = int(hvd.allreduce(torch.tensor(world.Get_rank()), op=hvd.Sum, process_set=process_set))
if (process_set.ranks, total) != (mine, sum(mine)):
    sys.exit(f"{process_set} has the sum {total}, not {sum(mine)} of {mine}")
hvd.shutdown()
