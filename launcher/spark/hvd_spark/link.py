"""Exchanges messages between a task and the driver over TCP, for both ends.

Only Spark carries the key. Each end proves that it knows the key by an HMAC-SHA256 over both
nonces, and every message has an HMAC over its number and its bytes. So nobody else can take part,
or change or replay a message. The messages are not encrypted: they carry the program's output and
no secret.
"""

import hashlib
import hmac
import os
import socket
import struct
import threading

_MAGIC = b"hvd-spark-link-1"
_NONCE = 32
_DIGEST = 32
_HANDSHAKE_SECONDS = 5
_MAX_MESSAGE = 16 << 20


class LinkError(OSError):
    """The other end does not know the key, a message was changed on its way, or the connection
    ended."""


def _mac(key, *parts):
    return hmac.new(key, b"".join(parts), hashlib.sha256).digest()


def key_of(secret):
    """Returns the key of a job's links, from which the secret cannot be computed."""
    return _mac(secret, b"hvd-spark link key")


class Link:
    """One end of an authenticated connection. One thread receives; any thread may send."""

    def __init__(self, connection, send_key, receive_key):
        self._socket = connection
        self._send_key, self._receive_key = send_key, receive_key
        self._sent = self._received = 0
        self._lock = threading.Lock()

    @classmethod
    def of_task(cls, address, key):
        """Connects to the driver. Raises OSError or its subclass LinkError."""
        connection = socket.create_connection(address, timeout=_HANDSHAKE_SECONDS)
        try:
            own = os.urandom(_NONCE)
            connection.sendall(_MAGIC + own)
            nonces = own + _receive(connection, _NONCE)
            if not hmac.compare_digest(_receive(connection, _DIGEST), _mac(key, b"driver", nonces)):
                raise LinkError("who listens at %s:%d is not the driver of this job" % address)
            connection.sendall(_mac(key, b"task", nonces))
            return cls._ready(
                connection, _mac(key, b"to driver", nonces), _mac(key, b"to task", nonces)
            )
        except BaseException:
            connection.close()
            raise

    @classmethod
    def of_driver(cls, connection, key):
        """Makes the driver's end from an accepted connection. Raises OSError or its subclass
        LinkError."""
        try:
            connection.settimeout(_HANDSHAKE_SECONDS)
            if _receive(connection, len(_MAGIC)) != _MAGIC:
                raise LinkError("not a task of hvd_spark")
            theirs, own = _receive(connection, _NONCE), os.urandom(_NONCE)
            nonces = theirs + own
            connection.sendall(own + _mac(key, b"driver", nonces))
            if not hmac.compare_digest(_receive(connection, _DIGEST), _mac(key, b"task", nonces)):
                raise LinkError("not a task of this job")
            return cls._ready(
                connection, _mac(key, b"to task", nonces), _mac(key, b"to driver", nonces)
            )
        except BaseException:
            connection.close()
            raise

    @classmethod
    def _ready(cls, connection, send_key, receive_key):
        connection.settimeout(None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # These end the connection when the other machine has acknowledged nothing for ten seconds.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 5)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 10_000)
        return cls(connection, send_key, receive_key)

    def send(self, message):
        """Sends one message. Raises OSError when the other end has closed the connection."""
        with self._lock:
            digest = _mac(self._send_key, struct.pack("<Q", self._sent), message)
            self._sent += 1
            self._socket.sendall(struct.pack("<I", len(message)) + message + digest)

    def receive(self):
        """Waits for the next message. Returns None when the connection has ended."""
        try:
            (size,) = struct.unpack("<I", _receive(self._socket, 4))
            if size > _MAX_MESSAGE:
                raise LinkError("a message of %d bytes" % size)
            message = _receive(self._socket, size)
            number = struct.pack("<Q", self._received)
            if not hmac.compare_digest(
                _receive(self._socket, _DIGEST), _mac(self._receive_key, number, message)
            ):
                raise LinkError("a message was changed on its way")
            self._received += 1
            return message
        except OSError:
            self.close()
            return None

    def finish(self):
        """Tells the other end that nothing more is sent. This end keeps receiving until the other
        end, which has then read everything, closes. If this end closed with unread data, TCP would
        reset the connection and discard what it has sent."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def close(self):
        """Closes the connection and wakes up the thread that receives. Any thread may call it, and
        more than once."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._socket.close()


def _receive(connection, size):
    parts = []
    while size > 0:
        part = connection.recv(min(size, 1 << 20))
        if not part:
            raise LinkError("the other end is gone")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


class LinkServer:
    """Accepts the links of a job's tasks on the driver. A connection without the key is closed and
    does not delay the others."""

    _MAX_STRANGERS = 64

    def __init__(self, host, key, on_link):
        """Listens on a free port of `host`. Threads of this object call on_link(Link)."""
        family, kind, protocol, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        self._socket = socket.socket(family, kind, protocol)
        self._socket.bind(address)
        self._socket.listen(1024)
        self._key, self._on_link = key, on_link
        self._strangers = threading.BoundedSemaphore(self._MAX_STRANGERS)
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True, name="hvd-spark-accept").start()

    def _accept(self):
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return  # `close` was called
            if not self._strangers.acquire(blocking=False):
                connection.close()
                continue
            threading.Thread(target=self._greet, args=(connection,), daemon=True).start()

    def _greet(self, connection):
        try:
            link = Link.of_driver(connection, self._key)
        except OSError:
            return
        finally:
            self._strangers.release()
        self._on_link(link)

    def close(self):
        try:
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes up accept
        except OSError:
            pass
        self._socket.close()
