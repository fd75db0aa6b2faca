"""Runs C++ programs of hvd as the tasks of a Spark barrier stage."""

from .distributor import HvdDistributor
from .errors import HvdError, ProgramError, StartError
from .version import VERSION as __version__

__all__ = ["HvdDistributor", "HvdError", "ProgramError", "StartError", "__version__"]
