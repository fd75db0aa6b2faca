"""Runs C++ programs of hvd on Spark: as tasks of a barrier stage, and as estimators of
DataFrames."""

import importlib

from .distributor import HvdDistributor
from .errors import HvdError, ProgramError, StartError
from .store import Store
from .version import VERSION as __version__

# These are imported on first use, because they need all of pyspark.ml.
_LATER = {"HvdEstimator": ".estimator", "HvdModel": ".estimator_model"}

__all__ = [
    "HvdDistributor",
    "HvdError",
    "HvdEstimator",
    "HvdModel",
    "ProgramError",
    "StartError",
    "Store",
    "__version__",
]


def __getattr__(name):
    if name in _LATER:
        return getattr(importlib.import_module(_LATER[name], __name__), name)
    raise AttributeError("module %r has no attribute %r" % (__name__, name))
