"""Lines of the harness: numbered, and kept until they are stored (sans-I/O)."""

from collections import deque

from acpmux.host.oversized import EDGE_BYTES, stand_in
from acpmux.wire.hostframe import MAX_BODY_BYTES

KEPT_BYTES = 64 * 1024 * 1024  # beyond this the harness waits: back-pressure rather than a drop
LINE_BYTES = 2000  # what each line counts for besides its own bytes: the daemon needs two seconds for 30,000 short ones
FLIGHT_LINES = 2000  # handed over and not stored yet: beyond this the daemon is given no more (it stores 500 at a time)
FLIGHT_BYTES = 8 * 1024 * 1024


class Outbox:
    """`last` is the number of the newest whole line, `sent` of the last one handed to the link."""

    def __init__(self, limit_bytes: int = MAX_BODY_BYTES) -> None:
        self._limit = limit_bytes
        self._kept: deque[tuple[int, bytes]] = deque()
        self._parts: list[bytes] = []
        self._partial = 0
        self._head = self._tail = b""
        self._flight_bytes = 0
        self.kept_bytes = 0
        self.last = 0
        self.sent = 0

    @property
    def partial(self) -> bool:
        """True while the harness has begun a line and not ended it."""
        return self._partial > 0

    @property
    def full(self) -> bool:
        return self.kept_bytes >= KEPT_BYTES

    def feed(self, data: bytes) -> None:
        """Takes what the harness wrote, in any split."""
        first, *rest = data.split(b"\n")
        self._add(first)
        for piece in rest:
            self._end_line()
            self._add(piece)

    def _add(self, piece: bytes) -> None:
        self._partial += len(piece)
        if self._partial > self._limit:  # its two ends are kept: one message fails, never the session
            if self._parts:
                self._head, self._parts = b"".join(self._parts)[:EDGE_BYTES], []
            self._tail = (self._tail + piece[-EDGE_BYTES:])[-EDGE_BYTES:]
        elif piece:
            self._parts.append(piece)

    def _end_line(self) -> None:
        line = b"".join(self._parts)
        if self._partial > self._limit:
            line = stand_in(self._head or self._tail, self._tail, self._partial)
        self._parts, self._partial, self._head, self._tail = [], 0, b"", b""
        if line.strip() and not self._repeats(line):
            self.last += 1
            self._kept.append((self.last, line))
            self.kept_bytes += len(line) + LINE_BYTES

    def _repeats(self, line: bytes) -> bool:
        """True for what is no message and says again what still waits to be told: once is enough."""
        return self.sent < self.last and line == self._kept[-1][1] and not line.lstrip().startswith(b"{")

    def next(self) -> tuple[int, bytes] | None:
        """The next line the link has not been handed, which it then has; none while too much is in flight."""
        if self.sent >= self.last:
            return None
        flight = self.sent + 1 - self._kept[0][0]
        if flight >= FLIGHT_LINES or self._flight_bytes >= FLIGHT_BYTES:
            return None
        number, line = self._kept[flight]
        self.sent = number
        self._flight_bytes += len(line)
        return number, line

    def ack(self, number: int) -> None:
        """Everything up to this number is stored: drop it."""
        while self._kept and self._kept[0][0] <= number:
            dropped, line = self._kept.popleft()
            self.kept_bytes -= len(line) + LINE_BYTES
            self._flight_bytes -= len(line) if dropped <= self.sent else 0
        self.sent = max(self.sent, min(number, self.last))

    def resume(self, after: int) -> None:
        """A new link has everything up to `after`; it gets what follows."""
        self.ack(after)
        self._flight_bytes = 0
        self.sent = max(after, self._kept[0][0] - 1 if self._kept else self.last)
