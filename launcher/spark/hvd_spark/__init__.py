"""Runs C++ programs of hvd on Spark: as tasks of a barrier stage, and as estimators of
DataFrames."""

import importlib

from .version import VERSION as __version__
from .version import check_spark

check_spark()  # before the imports below, which would fail for reasons that do not name the version

from .distributor import HvdDistributor
from .errors import HvdError, ProgramError, StartError
from .store import Store

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
