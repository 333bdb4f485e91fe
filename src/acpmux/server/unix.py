"""The Unix-socket listener: newline-delimited JSON-RPC."""

import asyncio
import logging
import os
import socket
from collections.abc import Callable

from acpmux.errors import OwnFault
from acpmux.hub.hub import Hub
from acpmux.paths import Paths
from acpmux.runtime.tasks import Tasks
from acpmux.server.access import peer_is_user
from acpmux.server.connection import Connection
from acpmux.server.methods import Methods
from acpmux.wire.framing import MAX_LINE_BYTES

log = logging.getLogger(__name__)


class UnixServer:
    """Listens from `start` to `close`. The caller holds the daemon's lock, so a socket nobody answers is stale.

    With a `nameless` socket it listens there too, for clients that find no file; the file is then made again.
    """

    def __init__(
        self,
        hub: Hub,
        paths: Paths,
        tasks: Tasks,
        shut_down: Callable[[], None],
        nameless: socket.socket | None = None,
    ) -> None:
        self._methods = Methods(hub, paths, shut_down)
        self._path = str(paths.socket)
        self._tasks = tasks
        self._nameless = nameless
        self._servers: list[asyncio.Server] = []  # the one of the socket's file is the last
        self._making = asyncio.Lock()
        self._connections: set[Connection] = set()

    async def start(self) -> None:
        """Raises: OwnFault when something else listens there."""
        if self._nameless is not None:
            self._servers.append(
                await asyncio.start_unix_server(
                    self._serve_nameless, sock=self._nameless, limit=MAX_LINE_BYTES, start_serving=False
                )
            )
        await self._listen()
        for server in self._servers:
            await server.start_serving()

    async def _listen(self) -> None:
        self.remove_stale()
        old = os.umask(0o177)
        try:
            self._servers.append(await asyncio.start_unix_server(self._serve, self._path, limit=MAX_LINE_BYTES))
        finally:
            os.umask(old)

    async def _serve_nameless(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with self._making:
            if not os.path.exists(self._path):
                log.warning("socket was taken away and is made again path=%s", self._path)
                self._servers.pop().close()
                await self._listen()
        await self._serve(reader, writer)

    def remove_stale(self) -> None:
        """Only a refused connection proves that nobody listens. Raises: OwnFault when somebody does."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            try:
                probe.connect(self._path)
            except ConnectionRefusedError:
                os.unlink(self._path)
                return
            except FileNotFoundError:
                return
        raise OwnFault(f"something that is not this acpmux listens on {self._path}")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(reader, writer, self._methods, self._tasks)
        self._connections.add(connection)
        try:
            if peer_is_user(writer.get_extra_info("socket")):
                await connection.run()
        finally:
            self._connections.discard(connection)
            writer.close()

    async def close(self) -> None:
        for server in self._servers:
            server.close()
        for connection in tuple(self._connections):
            connection.hang_up()
        try:
            os.unlink(self._path)
        except FileNotFoundError:
            pass
