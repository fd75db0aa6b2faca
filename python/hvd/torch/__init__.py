"""The API of horovod.torch, and the backend "hvd" of torch.distributed, which the import registers.

    import hvd.torch as hvd                      # was: import horovod.torch as hvd

    import hvd.torch                             # DDP on CPUs
    dist.init_process_group("hvd")               # was: dist.init_process_group("gloo")
"""

import torch

from hvd.build import TORCH_VERSION, VERSION as __version__

if torch.__version__.split("+")[0].split(".")[:2] != TORCH_VERSION.split(".")[:2]:
    raise ImportError(
        f"this hvd was built for torch {TORCH_VERSION} and torch {torch.__version__} is installed: "
        "install that torch, or build hvd with this one"
    )

from hvd.torch import elastic
from hvd.torch.collectives import (
    allgather,
    allgather_async,
    allreduce,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    alltoall,
    alltoall_async,
    barrier,
    broadcast,
    broadcast_,
    broadcast_async,
    broadcast_async_,
    grouped_allgather,
    grouped_allgather_async,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
    grouped_reducescatter,
    grouped_reducescatter_async,
    join,
    poll,
    reducescatter,
    reducescatter_async,
    sparse_allreduce_async,
    synchronize,
)
from hvd.torch.compression import Compression
from hvd.torch.job import (
    Adasum,
    Average,
    HorovodInternalError,
    Max,
    Min,
    ProcessSet,
    Product,
    Sum,
    add_process_set,
    ccl_built,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    global_process_set,
    gloo_built,
    gloo_enabled,
    init,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rank,
    remove_process_set,
    rocm_built,
    shutdown,
    size,
    start_timeline,
    stop_timeline,
)
from hvd.torch.optimizer import DistributedOptimizer
from hvd.torch.process_group import register as _register
from hvd.torch.state import (
    allgather_object,
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)
from hvd.torch.sync_batch_norm import SyncBatchNorm

_register()
