"""Sends the code of this package with each task, so that executors need not have the package."""

import sys


def send_by_value():
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__package__])
