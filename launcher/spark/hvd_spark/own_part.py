"""Encodes the part of an agent's orders that is made on its own machine, so that it does not cross
the network: the program, its environment and the secret. It is a Prepare frame of
launcher/src/transport/frames.hpp."""

import os
import struct

from .version import VERSION

SECRET_SIZE = 32
_PREPARE = 0  # the kind of the frame
_BIND_TO_NONE = 1  # in launcher/src/plan/binding.hpp
_MAX_FRAME = 16 << 20


def _text(value):
    data = value if isinstance(value, bytes) else value.encode("utf-8", "surrogateescape")
    return struct.pack("<I", len(data)) + data


def _texts(values):
    return struct.pack("<I", len(values)) + b"".join(_text(value) for value in values)


def own_part(*, program, directory, environment, interfaces, secret, of_first_rank=()):
    """Returns the bytes of the frame.

    environment: the variables of all ranks, as "NAME=value".
    of_first_rank: further variables of the agent's first rank.

    Raises ValueError when the secret has the wrong size or the frame is too large.
    """
    if len(secret) != SECRET_SIZE:
        raise ValueError("a secret has %d bytes" % SECRET_SIZE)
    frame = b"".join(
        [
            struct.pack("<B", _PREPARE),
            _text(VERSION),
            _text(""),  # the job's name; hvdrun sends it, and the next three numbers, itself
            struct.pack("<IBq", 0, 0, 0),
            _text(interfaces),
            _text(directory),
            _texts(program),
            _texts(environment),
            struct.pack("<Ii", 1, 0) + _texts(list(of_first_rank)),
            struct.pack("<i", 0),  # workers of an elastic job
            secret,
            # Ranks are not bound to cores: tasks of other jobs run on the same machines.
            struct.pack("<BBi", _BIND_TO_NONE, 0, 0),
        ]
    )
    if len(frame) > _MAX_FRAME:
        raise ValueError(
            "program, arguments and environment take %d bytes, more than %d"
            % (len(frame), _MAX_FRAME)
        )
    return frame


def as_file(own):
    """Returns a descriptor that an agent inherits. Its file has no name in any file system."""
    fd = os.memfd_create("hvd-own-part")
    try:
        with open(fd, "wb", closefd=False) as file:
            file.write(own)
    except BaseException:
        os.close(fd)
        raise
    return fd
