"""hvd: data-parallel training. `hvd.torch` has the API of horovod.torch and a torch.distributed backend."""

from hvd.build import VERSION as __version__
from hvd.launch import run

__all__ = ["__version__", "run"]
