"""The harness's three pipes, never waited for."""

import fcntl
import os
import selectors
import sys
from collections import deque
from typing import Any

from acpmux.host.child import Child
from acpmux.host.core import Outbox

CHUNK_BYTES = 64 * 1024  # short lines cost many times their bytes
STDERR_BYTES = 4096  # what is shown of it when a harness fails
_FIONREAD = 0x541B  # bytes in a pipe, from either end (pipe(7)); the termios module would cost memory


class Pipes:
    """Reads stdout into the outbox while there is room, keeps stderr's tail, and writes what stdin takes."""

    def __init__(self, child: Child, outbox: Outbox, selector: selectors.BaseSelector, heard: Any, broken: Any) -> None:
        """`heard` is called when something was read, `broken` with what can't be used any more."""
        self._child = child
        self._outbox = outbox
        self._selector = selector
        self._heard = heard
        self._broken = broken
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
        return bool(self._queue) or _waiting_bytes(self._child.stdin) > 0

    @property
    def unheard(self) -> bool:
        """True while output waits in the pipe: not all that was written is in the outbox."""
        return self._child.stdout in self._open and _waiting_bytes(self._child.stdout) > 0

    def watch(self) -> None:
        """Reads while the outbox has room: whoever floods waits, and nothing is dropped."""
        wanted = self._child.stdout in self._open and not self._outbox.full
        if wanted and not self._reading:
            self._selector.register(self._child.stdout, selectors.EVENT_READ, self._on_stdout)
        elif self._reading and not wanted:
            self._selector.unregister(self._child.stdout)
        self._reading = wanted

    def drain(self) -> None:
        """Takes what is in the pipe at this moment, room or not, and nothing that comes meanwhile."""
        wanted = _waiting_bytes(self._child.stdout) if self._child.stdout in self._open else 0
        while wanted > 0 and (data := self._read(self._child.stdout, wanted)):
            wanted -= len(data)
            self._outbox.feed(data)
        self.watch()

    def finish(self) -> None:
        """The harness has ended. What it wrote is taken; who still holds its stdout is heard no more."""
        self.drain()
        self._open.discard(self._child.stdout)
        self.watch()

    def _on_stdout(self, *_: Any) -> None:
        data = self._read(self._child.stdout)
        if data:
            self._outbox.feed(data)
        self.watch()
        self._heard()
        if data == b"":
            self._broken("its output")

    def _on_stderr(self, *_: Any) -> None:
        data = self._read(self._child.stderr)
        if data:
            self.stderr_tail = (self.stderr_tail + data)[-STDERR_BYTES:]
        elif data == b"":
            self._selector.unregister(self._child.stderr)

    def _read(self, fd: int, most: int = CHUNK_BYTES) -> bytes | None:
        """What is there, empty at the end, None when nothing is there now."""
        try:
            data = os.read(fd, most)
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
                self._broken("its input")
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


def _waiting_bytes(fd: int) -> int:
    """What is in a pipe, from either end; 0 when it is none any more."""
    try:
        return int.from_bytes(fcntl.ioctl(fd, _FIONREAD, b"\0\0\0\0"), sys.byteorder)
    except OSError:
        return 0
