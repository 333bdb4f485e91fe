"""The harness's three pipes, never waited for."""

import fcntl
import os
import selectors
import sys
from collections import deque
from typing import Any

from acpmux.host.child import Child
from acpmux.host.core import Outbox

CHUNK_BYTES = 1024 * 1024
STDERR_BYTES = 4096  # what is shown of it when a harness fails
_FIONREAD = 0x541B  # bytes in a pipe, from either end (pipe(7)); the termios module would cost memory


class Pipes:
    """Reads stdout into the outbox while there is room, keeps stderr's tail, and writes what stdin takes."""

    def __init__(self, child: Child, outbox: Outbox, selector: selectors.BaseSelector, heard: Any) -> None:
        self._child = child
        self._outbox = outbox
        self._selector = selector
        self._heard = heard
        self._queue: deque[bytes] = deque()
        self._open = {child.stdout, child.stderr}
        self._reading = False
        self._writing = False
        self.stdin_open = True
        self.stderr_tail = b""
        selector.register(child.stderr, selectors.EVENT_READ, self._on_stderr)
        self.watch()

    @property
    def unread(self) -> bool:
        """True while input waits here or in the pipe: the harness has not taken all that was sent to it."""
        if self._queue:
            return True
        return self._waiting(self._child.stdin) > 0

    @staticmethod
    def _waiting(fd: int) -> int:
        """How many bytes are in a pipe, 0 for one that is closed."""
        try:
            return int.from_bytes(fcntl.ioctl(fd, _FIONREAD, b"\0\0\0\0"), sys.byteorder)
        except OSError:
            return 0

    def watch(self) -> None:
        """Reads while the outbox has room: a harness that floods waits, and nothing is dropped."""
        wanted = self._child.stdout in self._open and not self._outbox.full
        if wanted and not self._reading:
            self._selector.register(self._child.stdout, selectors.EVENT_READ, self._on_stdout)
        elif self._reading and not wanted:
            self._selector.unregister(self._child.stdout)
        self._reading = wanted

    def drain(self) -> None:
        """Takes what is in the pipe at this moment, room or not. Somebody who writes on does not keep us here."""
        left = self._waiting(self._child.stdout) if self._child.stdout in self._open else 0
        while left > 0 and (taken := self._read_stdout()):
            left -= taken
        self.watch()

    def close(self) -> None:
        """The harness has ended and its last lines are taken: who still writes to its pipe is heard no more."""
        self._open.discard(self._child.stdout)
        self.watch()

    def _on_stdout(self, *_: Any) -> None:
        self._read_stdout()
        self.watch()
        self._heard()

    def _read_stdout(self) -> int:
        data = self._read(self._child.stdout)
        if data:
            self._outbox.feed(data)
        return len(data or b"")

    def _on_stderr(self, *_: Any) -> None:
        data = self._read(self._child.stderr)
        if data:
            self.stderr_tail = (self.stderr_tail + data)[-STDERR_BYTES:]
        elif data == b"":
            self._selector.unregister(self._child.stderr)

    def _read(self, fd: int) -> bytes | None:
        """What is there, empty at the end, None when nothing is there now."""
        try:
            data = os.read(fd, CHUNK_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            data = b""
        if data == b"":
            self._open.discard(fd)
        return data

    def write(self, line: bytes) -> None:
        if self.stdin_open:
            self._queue.append(line + b"\n")
            self._flush()

    def _flush(self, *_: Any) -> None:
        while self._queue:
            try:
                sent = os.write(self._child.stdin, self._queue[0])
            except BlockingIOError:
                break
            except OSError:
                self._queue.clear()
                self.stdin_open = False
                break
            if sent < len(self._queue[0]):
                self._queue[0] = self._queue[0][sent:]
            else:
                self._queue.popleft()
        self._watch_stdin()

    def _watch_stdin(self) -> None:
        wanted = bool(self._queue)
        if wanted and not self._writing:
            self._selector.register(self._child.stdin, selectors.EVENT_WRITE, self._flush)
        elif self._writing and not wanted:
            self._selector.unregister(self._child.stdin)
        self._writing = wanted
