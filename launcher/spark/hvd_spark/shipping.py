"""What tasks run travels with them: executors need not have this package."""

import sys


def send_by_value():
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__package__])
