"""Reads the result that rank 0 passes to hvd::set_result. It lies in a memfd, which has no name and
leaves no file behind."""

import json
import os

from .errors import HvdError


class ResultDescriptor:
    """The descriptor that rank 0 inherits. launcher/spark/src/result.hpp describes its format."""

    def __init__(self):
        self.fd = os.memfd_create("hvd-result")

    def variables(self):
        return ["HVD_RESULT_FD=%d" % self.fd]

    def take(self):
        """Returns the bytes of the result, of which the first byte is the kind, or no bytes when
        there is no result."""
        with open("/proc/self/fd/%d" % self.fd, "rb") as file:
            data = file.read()
        return b"" if data[:1] == b"\0" else data

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.fd)


def to_object(data):
    """Returns bytes, the object that the JSON describes, or None when there is no result. Raises
    HvdError for text that is not JSON."""
    kind, data = data[:1], data[1:]
    if kind == b"b":
        return bytes(data)
    if kind != b"j":
        return None
    try:
        return json.loads(data)
    except ValueError as error:
        raise HvdError("the result of rank 0 is no JSON: %s" % error) from None
