"""What rank 0 hands back with hvd::set_result: a descriptor without a name, so that nothing is
left."""

import json
import os

from .errors import HvdError


class ResultDescriptor:
    """The rank inherits it; core/src/bootstrap/result.hpp tells how a result lies in it."""

    def __init__(self):
        self.fd = os.memfd_create("hvd-result")

    def variables(self):
        return ["HVD_RESULT_FD=%d" % self.fd]

    def take(self):
        """Its bytes, of which the first tells the kind; empty when there is no result."""
        with open("/proc/self/fd/%d" % self.fd, "rb") as file:
            data = file.read()
        return b"" if data[:1] == b"\0" else data

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.fd)


def to_object(data):
    """bytes, what the JSON describes, or None. Raises HvdError for text that is no JSON."""
    kind, data = data[:1], data[1:]
    if kind == b"b":
        return bytes(data)
    if kind != b"j":
        return None
    try:
        return json.loads(data)
    except ValueError as error:
        raise HvdError("the result of rank 0 is no JSON: %s" % error) from None
