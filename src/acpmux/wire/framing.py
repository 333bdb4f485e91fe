"""Lines out of bytes, whatever the split; one limit for every side that reads lines."""

from acpmux.wire.hostframe import MAX_BODY_BYTES

# tool output of 50 MB was seen; the room is for what acpmux puts around it: an agent's own session id, a record's head
MAX_LINE_BYTES = MAX_BODY_BYTES - 64 * 1024


class LineReader:
    """Cuts bytes into lines without their newline.

    A line over the limit is dropped, counted in `dropped`, and the next one is read.
    """

    def __init__(self, limit_bytes: int = MAX_LINE_BYTES) -> None:
        self._limit = limit_bytes
        self._parts: list[bytes] = []
        self._size = 0
        self.dropped = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Every line that `data` completes, empty ones left out."""
        lines: list[bytes] = []
        first, *rest = data.split(b"\n")
        self._add(first)
        for piece in rest:
            line = self._take()
            if line is not None and line.strip():
                lines.append(line)
            self._add(piece)
        return lines

    def _add(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._limit:
            self._parts.clear()
        elif piece:
            self._parts.append(piece)

    def _take(self) -> bytes | None:
        over = self._size > self._limit
        line = b"".join(self._parts)
        self._parts, self._size = [], 0
        self.dropped += over
        return None if over else line.removesuffix(b"\r")
