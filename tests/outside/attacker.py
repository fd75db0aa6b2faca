"""An attacker off the path: a host that can connect to the ports of a job and holds no secret (SECURITY.md).

    attacker.py KIND SECONDS ADDRESS:PORT...      with recorded streams, in hex and one a line, on stdin

It sends every payload of the kind to every target, and goes on in the same way until SECONDS are over. It prints how
many connections it made, how many of them were answered, how many payloads the kind has, and which targets did not get
all of them. At most 96 connections are open at a time. The first pass ends when every payload was sent to every target.
"""

import collections
import os
import socket
import sys
import time

MOST = 96  # open connections; a server keeps 64 in the handshake
HELLO = 248  # bytes (docs/internals/protocol.md)
PATIENCE = 0.2  # seconds in which a server answers, or takes what it is sent
PAUSE = 0.02  # seconds between the bytes of a slow hello, which so takes 5 s; a server waits for one


def connect(target):
    """Returns a connected socket, or None."""
    address, port = target.rsplit(":", 1)
    try:
        peer = socket.create_connection((address, int(port)), 3)  # the system sends a lost SYN again after a second
    except OSError:
        return None
    peer.settimeout(PATIENCE)
    return peer


def send(to, data):
    """Sends what the other side takes; tells whether the connection still is there."""
    try:
        to.sendall(data)
        return True
    except OSError:
        return False


def is_answered(peer, deadline):
    """Tells whether something comes back until then, and closes the connection."""
    peer.settimeout(max(0, deadline - time.monotonic()))
    try:
        return bool(peer.recv(4096))
    except OSError:
        return False
    finally:
        peer.close()


def hello(role=1, version=1):
    head = b"hvd!" + version.to_bytes(2, "little") + role.to_bytes(2, "little") + os.urandom(32)
    return (head + bytes(4) + (0).to_bytes(4, "little") + b"\xfe\xff\xff\xff").ljust(HELLO, b"\0")


def payloads(kind, recorded):
    """Yields what to send on a connection each, as a list of pieces."""
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
        for stream in recorded:
            for size in (HELLO, HELLO + 16, HELLO + 32, len(stream)):
                yield [stream[:size]]
            for at in range(0, min(len(stream), HELLO + 32), 9):
                yield [stream[:at] + bytes([stream[at] ^ 1]) + stream[at + 1:]]


def attempts(kind, recorded, targets, seconds):
    """Yields targets and what to send to each: all payloads to all of them, and again until the time is over."""
    stop = time.monotonic() + seconds
    is_first = True
    while is_first or time.monotonic() < stop:
        for pieces in payloads(kind, recorded):
            for target in targets:
                if not is_first and time.monotonic() > stop:
                    return
                yield target, pieces
        is_first = False


def flood(kind, recorded, targets, seconds):
    """Returns how many connections each target took, and how many of them were answered."""
    made = collections.Counter()
    answered = 0
    # Connections wait for their answers together. Silent ones wait for none: the oldest ends when there are too many.
    patience = 0 if kind == "silent" else PATIENCE
    held = collections.deque()
    for target, pieces in attempts(kind, recorded, targets, seconds):
        peer = connect(target)
        if peer is None:
            time.sleep(0.002)  # nothing listens yet, or any more
            continue
        made[target] += 1
        for piece in pieces:
            if not send(peer, piece):
                break
        held.append((peer, time.monotonic() + patience))
        if len(held) == MOST:
            answered += is_answered(*held.popleft())
    return made, answered + sum(is_answered(*each) for each in held)


def trickle(peers, pieces):
    """Sends these to all peers at the same time, with pauses; returns how many of the peers take all of them."""
    patient = peers
    for piece in pieces:
        patient = [peer for peer in patient if send(peer, piece)]
        if not patient:
            break
        time.sleep(PAUSE)
    for peer in peers:
        peer.close()
    return len(patient)


def flood_slowly(targets):
    """Returns how many connections each target took, and how many of them took a whole slow hello."""
    made = collections.Counter()
    patient = 0
    [pieces] = payloads("slow", [])
    for first in range(0, len(targets), MOST):
        peers = {target: connect(target) for target in targets[first:first + MOST]}
        made.update(target for target, peer in peers.items() if peer)
        patient += trickle([peer for peer in peers.values() if peer], pieces)
    return made, patient


def main():
    kind, seconds, targets = sys.argv[1], float(sys.argv[2]), sys.argv[3:]
    recorded = [bytes.fromhex(line) for line in sys.stdin.read().split()]
    made, answered = flood_slowly(targets) if kind == "slow" else flood(kind, recorded, targets, seconds)
    count = sum(1 for _ in payloads(kind, recorded))
    print(sum(made.values()), answered, count, *(target for target in targets if made[target] < count))


if __name__ == "__main__":
    main()
