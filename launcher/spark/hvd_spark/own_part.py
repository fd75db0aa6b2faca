"""What an agent is told by whoever starts it on its own machine, so that none of it goes over the
way to the driver: a Prepare frame of launcher/src/transport/frames.hpp."""

import os
import struct

from .version import VERSION

SECRET_SIZE = 32
_PREPARE = 0  # the kind of the frame
_MAX_FRAME = 16 << 20


def _text(value):
    data = value if isinstance(value, bytes) else value.encode("utf-8", "surrogateescape")
    return struct.pack("<I", len(data)) + data


def _texts(values):
    return struct.pack("<I", len(values)) + b"".join(_text(value) for value in values)


def own_part(*, program, directory, environment, interfaces, secret, of_first_rank=()):
    """environment: of all ranks, "NAME=value" each. of_first_rank: more of the agent's first one.
    Raises ValueError."""
    if len(secret) != SECRET_SIZE:
        raise ValueError("a secret has %d bytes" % SECRET_SIZE)
    frame = b"".join(
        [
            struct.pack("<B", _PREPARE),
            _text(VERSION),
            _text(""),  # the job's name, its restarts, where it meets and its timeout: hvdrun's
            struct.pack("<IBq", 0, 0, 0),
            _text(interfaces),
            _text(directory),
            _texts(program),
            _texts(environment),
            struct.pack("<Ii", 1, 0) + _texts(list(of_first_rank)),
            secret,
        ]
    )
    if len(frame) > _MAX_FRAME:
        raise ValueError(
            "program, arguments and environment take %d bytes, more than %d"
            % (len(frame), _MAX_FRAME)
        )
    return frame


def as_file(own):
    """A descriptor that an agent inherits; it has no name in any file system."""
    fd = os.memfd_create("hvd-own-part")
    try:
        with open(fd, "wb", closefd=False) as file:
            file.write(own)
    except BaseException:
        os.close(fd)
        raise
    return fd
