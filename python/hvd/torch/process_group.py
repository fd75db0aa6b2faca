"""Registers the backend "hvd" of torch.distributed."""

import atexit
import datetime
import functools
import os

from torch import cuda, distributed

from hvd import _C
from hvd.torch.job import cuda_built


def _create(options, _backend_options):
    # Torch disables it by default; with 0 DDP allocates its buckets through our backend. On machines
    # with a GPU a DDP over NCCL in the same process would change too.
    if not cuda.is_available():
        os.environ.setdefault("DDP_DISABLE_COMM_MEM", "0")
    timeout = options.timeout
    return _C.create_backend(
        options.store,
        options.group_rank,
        options.group_size,
        options.group_id,
        not options.global_ranks_in_group,
        timeout.total_seconds(),
    )


def _is_of_hvd(group):
    """Whether hvd runs the group's operations on the CPU, as it also does in "cpu:hvd,cuda:nccl"."""
    return "cpu:hvd" in distributed.get_backend_config(group).split(",")


def _with_hvd(monitored_barrier):
    """Returns torch's function, which refuses every backend but gloo, for groups of hvd too."""

    @functools.wraps(monitored_barrier)
    def call(group=None, timeout=None, wait_all_ranks=False):
        if not distributed.is_initialized() or distributed.get_rank(group) < 0 or not _is_of_hvd(group):
            return monitored_barrier(group, timeout, wait_all_ranks)
        group = distributed.group.WORLD if group is None else group
        if isinstance(timeout, (int, float)):
            timeout = datetime.timedelta(seconds=timeout)
        options = {} if timeout is None else {"timeout": timeout}
        return group.monitored_barrier(wait_all_ranks=wait_all_ranks, **options)

    return call


def register():
    if not distributed.is_available() or "hvd" in distributed.Backend.backend_list:
        return
    devices = ["cpu", "cuda"] if cuda_built() else ["cpu"]
    distributed.Backend.register_backend("hvd", _create, extended_api=True, devices=devices)
    distributed.monitored_barrier = _with_hvd(distributed.monitored_barrier)
    # A program that ends without destroy_process_group() must not leave threads of the engine
    # behind while Python ends.
    atexit.register(_C.leave_groups)
