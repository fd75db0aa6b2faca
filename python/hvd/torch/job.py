"""The job: its ranks, process sets, timeline, and what this build of hvd contains."""

import os

import torch

from hvd import _C, build

HorovodInternalError = _C.HorovodInternalError

# The reduce operations, by their numbers in the engine. Adasum is not one of the engine's.
Average, Sum, Min, Max, Product = range(5)
Adasum = 5


def _ranks_of(comm):
    """The ranks in a list or a communicator of mpi4py, as the launcher numbers them."""
    if not hasattr(comm, "Get_group"):
        return list(comm)
    from mpi4py import MPI  # the communicator comes from it

    return list(MPI.Group.Translate_ranks(comm.Get_group(), None, MPI.COMM_WORLD.Get_group()))


class ProcessSet:
    """Some ranks that run collectives of their own. `add_process_set` gives it an id.

    `ranks` is a list. For `init` it may be a communicator of mpi4py instead, and each rank gives the one that it is in.
    """

    def __init__(self, ranks):
        self._is_split = hasattr(ranks, "Get_group")
        self.ranks = sorted(_ranks_of(ranks))
        if len(set(self.ranks)) != len(self.ranks):
            raise ValueError(f"a rank occurs twice in {self.ranks}")
        self._added = None  # the job in which it was added, and its number there

    @property
    def process_set_id(self):
        """Its number, or None where it has not been added to the present job."""
        return self._added[1] if self._added and self._added[0] == job_number() else None

    def _id(self):
        if self.process_set_id is None:
            why = ("was added to an earlier job, before hvd.shutdown() or before the ranks changed: add it again"
                   if self._added else "has not been added, or was removed")
            raise ValueError(f"{self} {why}")
        return self.process_set_id

    def size(self):
        self._id()
        return len(self.ranks)

    def rank(self):
        """The index of this rank in the set, or -1."""
        self._id()
        return self.ranks.index(rank()) if self.included() else -1

    def included(self):
        self._id()
        return rank() in self.ranks

    def __eq__(self, other):
        return isinstance(other, ProcessSet) and self.ranks == other.ranks

    def __hash__(self):
        return hash(tuple(self.ranks))

    def __str__(self):
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks})"


class _GlobalProcessSet(ProcessSet):
    """All ranks of the job."""

    process_set_id = 0
    _is_split = False

    def __init__(self):
        pass  # its ranks are known after `init`

    @property
    def ranks(self):
        return list(range(size())) if is_initialized() else []


global_process_set = _GlobalProcessSet()

_inits = 0  # how often this process has joined a job


def job_number():
    """Differs between the jobs that this process joins one after the other, and between generations of ranks."""
    return _inits, _C.elastic_generation()


_local_sizes = []  # of the hosts of all ranks


def init(comm=None, process_sets=None):
    """Joins the job. `process_sets` are added at once.

    `comm` is a list of ranks, or a communicator of mpi4py. The ranks in it make a job of their own, with their
    positions in it as ranks. Only they call this; the others may make other jobs.
    """
    global _inits
    if not is_initialized():
        if comm is not None and _C.elastic_active():
            raise ValueError("hvd.init(comm): an elastic job has all ranks that there are")
        _C.init([] if comm is None else _ranks_of(comm))
        _inits += 1
        if not _C.elastic_active():  # there, ranks exist only in the function of elastic.run
            learn_hosts()
    for process_set in [] if process_sets in (None, "dynamic") else process_sets:
        if isinstance(process_set, ProcessSet) and process_set._is_split:
            _add_split(process_set)
        else:
            add_process_set(process_set)


def _add_split(process_set):
    """Adds the sets of all ranks, since each has the communicator that it is in."""
    mine = process_set.ranks
    values = _C.allgather_async(torch.tensor([len(mine), *mine], device="cpu"), "process_sets", 0).wait().tolist()
    sets = set()
    while values:
        end = 1 + values[0]
        sets.add(tuple(values[1:end]))
        del values[:end]
    for ranks in sorted(sets):
        added = _C.add_process_set(list(ranks))
        if list(ranks) == mine:
            process_set._added = job_number(), added


def learn_hosts():
    """Collective, when the ranks are new."""
    global _local_sizes
    _local_sizes = _C.allgather_async(torch.tensor([local_size()], device="cpu"), "local_sizes", 0).wait().tolist()


shutdown = _C.shutdown
is_initialized = _C.is_initialized
rank = _C.rank
size = _C.size
local_rank = _C.local_rank
local_size = _C.local_size
cross_rank = _C.cross_rank
cross_size = _C.cross_size
def is_homogeneous():
    """Whether every host has as many ranks."""
    return len(set(_local_sizes)) == 1


def add_process_set(process_set):
    """Collective over all ranks. Takes a ProcessSet or a list of ranks, and returns the set."""
    if not isinstance(process_set, ProcessSet):
        process_set = ProcessSet(process_set)
    if process_set.process_set_id is not None:
        raise ValueError(f"{process_set} has been added already")
    added = _C.add_process_set(process_set.ranks)
    process_set._added = job_number(), added
    return process_set


def remove_process_set(process_set):
    """Collective over all ranks. Returns False for a set that is not there."""
    if process_set is global_process_set or process_set.process_set_id is None:
        return False
    _C.remove_process_set(process_set.process_set_id)
    process_set._added = None
    return True


def start_timeline(file_path, mark_cycles=False):
    """All ranks call it, and each writes a file of its own. There are no cycles to mark."""
    del mark_cycles
    _C.start_timeline(file_path)


stop_timeline = _C.stop_timeline


def mpi_built(verbose=False):
    del verbose
    return build.HAS_MPI


def cuda_built(verbose=False):
    """Whether tensors may be on GPUs."""
    del verbose
    return build.HAS_NCCL and torch.backends.cuda.is_built()


def nccl_built(verbose=False):
    """NCCL's version as in NCCL_VERSION_CODE (22809 for 2.28.9), or 0 without NCCL."""
    if not cuda_built(verbose):
        return 0
    major, minor, patch = map(int, build.NCCL_VERSION.split("."))
    return major * 10000 + minor * 100 + patch


def mpi_enabled():
    """Whether MPI moves the data, which HVD_BACKEND=mpi asks for."""
    return build.HAS_MPI and os.environ.get("HVD_BACKEND") == "mpi"


def mpi_threads_supported():
    return build.HAS_MPI


def _never(verbose=False):
    """hvd has no such engine."""
    del verbose
    return False


gloo_built = gloo_enabled = ddl_built = ccl_built = rocm_built = _never
