"""An attacker off the path: a host that can connect to the ports of a job and holds no secret (SECURITY.md).

    attacker.py KIND SECONDS ADDRESS:PORT...      with recorded streams, in hex and one a line, on stdin

It prints how many connections it made. Every kind is bounded in connections and time.
"""

import os
import selectors
import socket
import sys
import time

MOST = 96  # open connections; a server keeps 64 in the handshake
HELLO = 248  # bytes (docs/internals/protocol.md)


def connect(target):
    """Returns a connected socket, or None."""
    address, port = target.rsplit(":", 1)
    try:
        return socket.create_connection((address, int(port)), 0.5)
    except OSError:
        return None


def send(to, data):
    """Sends what the other side takes; tells whether the connection still is there."""
    try:
        to.sendall(data)
        return True
    except OSError:
        return False


def hello(role=1, version=1):
    head = b"hvd!" + version.to_bytes(2, "little") + role.to_bytes(2, "little") + os.urandom(32)
    return (head + bytes(4) + (0).to_bytes(4, "little") + b"\xfe\xff\xff\xff").ljust(HELLO, b"\0")


def payloads(kind, recorded):
    """Yields for ever what to send on a connection each, as a list of pieces."""
    while True:
        if kind == "silent":
            yield []
        elif kind == "slow":
            yield [bytes([each]) for each in hello()]
        elif kind == "garbage":
            yield [os.urandom(size) for size in (1, 7, 248, 4096, 65536)]
        elif kind == "truncated":
            for size in (1, 4, 8, 40, HELLO - 1, HELLO):
                yield [hello()[:size]]
            yield [hello(role=2)]
            yield [hello(version=9)]
            yield [hello(), hello(), os.urandom(32)]
        else:  # replay: whole, cut at every kind of place, and with one bit changed
            if not recorded:
                return
            for stream in recorded:
                for size in (HELLO, HELLO + 16, HELLO + 32, len(stream)):
                    yield [stream[:size]]
                for at in range(0, min(len(stream), HELLO + 32), 9):
                    yield [stream[:at] + bytes([stream[at] ^ 1]) + stream[at + 1:]]


def main():
    kind, seconds, targets = sys.argv[1], float(sys.argv[2]), sys.argv[3:]
    recorded = [bytes.fromhex(line) for line in sys.stdin.read().split()]
    stop = time.monotonic() + seconds
    made = answered = 0
    held = []
    for pieces in payloads(kind, recorded):
        if time.monotonic() > stop:
            break
        target = targets[made % len(targets)]
        peer = connect(target)
        if peer is None:
            time.sleep(0.01)  # nothing listens yet, or any more
            continue
        made += 1
        peer.settimeout(0.2)
        for piece in pieces:
            if not send(peer, piece):
                break
            if kind == "slow":
                time.sleep(0.0002)
        if kind in ("silent", "slow"):
            held.append(peer)
            if len(held) == MOST:
                # The server ends them after a second; the oldest is dropped here.
                held.pop(0).close()
            continue
        try:
            answered += bool(peer.recv(4096))
        except OSError:
            pass
        peer.close()
    for peer in held:
        peer.close()
    print(made, answered)


if __name__ == "__main__":
    main()
