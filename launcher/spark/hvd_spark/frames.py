"""The frames between hvdrun and its agents: launcher/src/frames.hpp in Python.

A frame here is its bytes without the length in front: a kind, and fields in order, little-endian.
"""

import struct
from typing import NamedTuple

# The kind of a frame is its place in the variant of frames.hpp.
PREPARE, LAUNCH, _FORWARD, END, CREDIT, PREPARED, REFUSED, STARTED, OUTPUT, EXITED, _GONE, DONE = (
    range(12)
)

MEET_ELSEWHERE, MEET_ON_MACHINE, MEET_ON_NETWORK = range(3)
MAX_FRAME = 16 << 20
SECRET_SIZE = 32


class Rank(NamedTuple):
    rank: int
    variables: list  # "NAME=value"


class Prepared(NamedTuple):
    hostname: str
    store: str  # empty but from the agent that serves it
    master_host: str
    master_port: int


class Refused(NamedTuple):
    code: int
    message: str


class Started(NamedTuple):
    rank: int
    pid: int


class Output(NamedTuple):
    rank: int
    stream: int  # 0: stdout, 1: stderr
    bytes: bytes


class Exited(NamedTuple):
    rank: int
    status: int  # as from waitpid
    seconds: float
    deserted: bool = False  # it exited 0, and had joined the library's job and not left it


class Done(NamedTuple):
    pass


def _text(value):
    data = value if isinstance(value, bytes) else value.encode("utf-8", "surrogateescape")
    return struct.pack("<I", len(data)) + data


def _texts(values):
    return struct.pack("<I", len(values)) + b"".join(_text(value) for value in values)


def prepare(
    *, version, job_id, meeting, interfaces, directory, program, environment, ranks, secret
):
    """Everything there is to know, to be checked before anything starts. ranks: of Rank."""
    if len(secret) != SECRET_SIZE:
        raise ValueError("a secret has %d bytes" % SECRET_SIZE)
    frame = b"".join(
        [
            struct.pack("<B", PREPARE),
            _text(version),
            _text(job_id),
            struct.pack("<IBB", 0, meeting, 0),  # no restart, no beats: it is a pipe
            _text(interfaces),
            _text(directory),
            _texts(program),
            _texts(environment),
            struct.pack("<I", len(ranks)),
            *(struct.pack("<i", rank.rank) + _texts(rank.variables) for rank in ranks),
            secret,
        ]
    )
    if len(frame) > MAX_FRAME:
        raise ValueError(
            "program, arguments and environment take %d bytes, more than %d"
            % (len(frame), MAX_FRAME)
        )
    return frame


def launch(variables):
    return struct.pack("<B", LAUNCH) + _texts(variables)


def end(signal, grace_seconds):
    return struct.pack("<Biq", END, signal, int(grace_seconds * 1000))


def credit(count):
    return struct.pack("<BI", CREDIT, count)


def refused(code, message):
    return struct.pack("<Bi", REFUSED, code) + _text(message)


class _Reader:
    def __init__(self, frame):
        self._frame = frame
        self._at = 1

    def number(self, form):
        try:
            (value,) = struct.unpack_from("<" + form, self._frame, self._at)
        except struct.error:
            raise ValueError("a frame of hvdrun's agent ends early") from None
        self._at += struct.calcsize("<" + form)
        return value

    def is_left(self):
        return self._at < len(self._frame)

    def blob(self):
        size = self.number("I")
        if size > len(self._frame) - self._at:
            raise ValueError("a frame of hvdrun's agent ends early")
        self._at += size
        return self._frame[self._at - size : self._at]

    def text(self):
        return self.blob().decode("utf-8", "surrogateescape")


def decode(frame):
    """What an agent says; None for what does not matter here. Raises ValueError."""
    kind = frame[0] if frame else -1
    read = _Reader(frame)
    if kind == PREPARED:
        hostname = read.text()
        read.number("i")  # OMP_NUM_THREADS
        return Prepared(hostname, read.text(), read.text(), read.number("H"))
    if kind == REFUSED:
        return Refused(read.number("i"), read.text())
    if kind == STARTED:
        return Started(read.number("i"), read.number("i"))
    if kind == OUTPUT:
        return Output(read.number("i"), read.number("B"), read.blob())
    if kind == EXITED:
        ended = read.number("i"), read.number("i"), read.number("q") / 1000
        return Exited(*ended, deserted=read.is_left() and read.number("B") == 1)
    return Done() if kind == DONE else None
