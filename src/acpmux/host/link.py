"""The host's end of the link to a daemon: one connection at a time, a newer one takes its place."""

import os
import selectors
import socket
import struct
from collections.abc import Callable
from typing import Any

from acpmux.wire import hostframe

CHUNK_BYTES = 1024 * 1024
OUT_LIMIT_BYTES = 4 * 1024 * 1024  # more is not put on its way: the outbox keeps it
HELLO_BYTES = 4096  # nobody unproven may send more


class Listener:
    """Accepts connections of this user only (SO_PEERCRED), and lets in whoever shows the token first."""

    def __init__(self, path: str, selector: selectors.BaseSelector, arrived: Callable[[socket.socket], None]) -> None:
        self._path = path
        self._arrived = arrived
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        old = os.umask(0o177)
        try:
            self._socket.bind(path)
        finally:
            os.umask(old)
        self._socket.listen(8)
        selector.register(self._socket, selectors.EVENT_READ, self._accept)

    def _accept(self, *_: Any) -> None:
        try:
            connection = self._socket.accept()[0]
        except OSError:
            return
        uid = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
        if uid != os.getuid():
            connection.close()
            return
        connection.setblocking(False)
        self._arrived(connection)

    def close(self) -> None:
        self._socket.close()
        try:
            if not self._path.startswith("\0"):
                os.unlink(self._path)
        except OSError:
            pass


class Link:
    """Frames in and out over one connection. `proven` is false until its hello was accepted."""

    def __init__(
        self,
        connection: socket.socket,
        selector: selectors.BaseSelector,
        frame: Callable[["Link", hostframe.Frame], None],
        lost: Callable[["Link"], None],
        writable: Callable[[], None],
    ) -> None:
        self._socket = connection
        self._selector = selector
        self._frame = frame
        self._lost = lost
        self._writable = writable
        self._reader = hostframe.FrameReader()
        self._out = bytearray()
        self._received = 0
        self.proven = False
        self.closed = False
        selector.register(connection, selectors.EVENT_READ, self._ready)

    @property
    def roomy(self) -> bool:
        return not self.closed and len(self._out) < OUT_LIMIT_BYTES

    def send(self, kind: str, body: bytes = b"", /, **header: Any) -> None:
        if not self.closed:
            try:
                self._out += hostframe.encode(kind, body, **header)
            except hostframe.FrameTooBig as error:
                self._out += hostframe.encode("failed", id=header.get("id", 0), reason=str(error))
            self._flush()

    def poll(self) -> None:
        """Takes what has arrived, without waiting."""
        while not self.closed:
            try:
                data = self._socket.recv(CHUNK_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self.close()
                return
            self._received += len(data)
            self._feed(data)

    def _feed(self, data: bytes) -> None:
        try:
            for frame in self._reader.feed(data):
                self._frame(self, frame)
        except hostframe.FrameError:
            self.close()
            return
        if not self.proven and self._received > HELLO_BYTES:
            self.close()

    def _ready(self, _: selectors.SelectorKey, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            self._flush()
            self._writable()
        if mask & selectors.EVENT_READ:
            self.poll()

    def _flush(self) -> None:
        while self._out:
            try:
                sent = self._socket.send(memoryview(self._out)[:CHUNK_BYTES])
            except BlockingIOError:
                break
            except OSError:
                self.close()
                return
            del self._out[:sent]
        if not self.closed:
            mask = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._out else 0)
            self._selector.modify(self._socket, mask, self._ready)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._selector.unregister(self._socket)
            self._socket.close()
            self._lost(self)
