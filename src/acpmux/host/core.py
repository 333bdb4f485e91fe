"""Lines of the harness: numbered, and kept until they are stored (sans-I/O)."""

import json
from collections import deque

from acpmux.wire.hostframe import MAX_BODY_BYTES

KEPT_BYTES = 64 * 1024 * 1024  # beyond this the harness waits: back-pressure rather than a drop


class Outbox:
    """`last` is the number of the newest whole line, `sent` of the last one handed to the link."""

    def __init__(self, limit_bytes: int = MAX_BODY_BYTES) -> None:
        self._limit = limit_bytes
        self._kept: deque[tuple[int, bytes]] = deque()
        self._parts: list[bytes] = []
        self._partial = 0
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
        if self._partial > self._limit:
            self._parts.clear()  # it is counted on and thrown away: one message fails, never the session
        elif piece:
            self._parts.append(piece)

    def _end_line(self) -> None:
        line = b"".join(self._parts)
        if self._partial > self._limit:
            told = {"jsonrpc": "2.0", "method": "_acpmux/oversized", "params": {"bytes": self._partial}}
            line = json.dumps(told).encode()
        self._parts, self._partial = [], 0
        if line.strip():
            self.last += 1
            self._kept.append((self.last, line))
            self.kept_bytes += len(line)

    def next(self) -> tuple[int, bytes] | None:
        """The next line the link has not been handed, which it then has."""
        if self.sent >= self.last:
            return None
        number, line = self._kept[self.sent + 1 - self._kept[0][0]]
        self.sent = number
        return number, line

    def ack(self, number: int) -> None:
        """Everything up to this number is stored: drop it."""
        while self._kept and self._kept[0][0] <= number:
            self.kept_bytes -= len(self._kept.popleft()[1])
        self.sent = max(self.sent, min(number, self.last))

    def resume(self, after: int) -> None:
        """A new link has everything up to `after`; it gets what follows."""
        self.ack(after)
        self.sent = max(after, self._kept[0][0] - 1 if self._kept else self.last)
