"""What the ranks print, line by line on the driver's own streams, and the last lines of each."""

import collections
import datetime
import re
import sys

TAIL_LINES = 100
_MAX_HELD = 64 << 10  # a longer line comes out in pieces
_END = re.compile(rb"\r\n|\n|\r")
_PEER_LOST = re.compile(r"peer lost: rank (\d+)\b")
_NAMES = ("stdout", "stderr")


class Output:
    """to: two text streams that take the place of sys.stdout and sys.stderr, or None for each."""

    def __init__(self, to=(None, None), timestamps=False):
        self._to, self._timestamps = to, timestamps
        self._held = collections.defaultdict(bytes)  # by rank and stream: a line that has not ended
        self._returned = set()  # whose last line ended with "\r": a "\n" that follows belongs to it
        self._tails = collections.defaultdict(lambda: collections.deque(maxlen=TAIL_LINES))

    def feed(self, rank, stream, data):
        key = (rank, stream)
        if key in self._returned:
            self._returned.discard(key)
            if data[:1] == b"\n":
                data = data[1:]
        data = self._held.pop(key, b"") + data
        at = 0
        text = []
        for match in _END.finditer(data):
            text.append(self._line(rank, stream, data[at : match.start()], match.group()))
            at = match.end()
        if at and at == len(data) and data.endswith(b"\r"):
            self._returned.add(key)
        rest = data[at:]
        if len(rest) > _MAX_HELD:
            text.append(self._line(rank, stream, rest, b"\n"))
        elif rest:
            self._held[key] = rest
        self._print(stream, "".join(text))

    def finish(self):
        """Lines that nothing ended."""
        for (rank, stream), rest in sorted(self._held.items()):
            self._print(stream, self._line(rank, stream, rest, b"\n"))
        self._held.clear()

    def tail(self, rank):
        return list(self._tails[rank])

    def lost_by(self, rank):
        """Whom the library's own message blames, which most programs print at their end."""
        found = (_PEER_LOST.search(line) for line in reversed(self._tails[rank]))
        return next((int(match.group(1)) for match in found if match), None)

    def _line(self, rank, stream, line, end):
        text = "[%d]<%s>:%s" % (rank, _NAMES[stream], line.decode("utf-8", "replace"))
        self._tails[rank].append(text)
        if self._timestamps:
            text = datetime.datetime.now().isoformat(" ", "milliseconds") + " " + text
        return text + ("\r" if end == b"\r" else "\n")

    def _print(self, stream, text):
        if text:
            to = self._to[stream] or (sys.stderr if stream else sys.stdout)
            try:
                to.write(text)
            except UnicodeEncodeError:  # a driver with another locale
                to.write(text.encode("ascii", "backslashreplace").decode("ascii"))
            to.flush()
