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
from acpmux.server.connection import CHUNK_BYTES, Connection
from acpmux.server.listening import Listening
from acpmux.server.methods import Methods

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
        self._listening: list[Listening] = []  # the one of the socket's file is the last
        self._connections: set[Connection] = set()

    def start(self) -> None:
        """Raises: OwnFault when it can't listen, as when something else does."""
        if self._nameless is not None:
            self._listening.append(Listening(self._nameless, self._serve_nameless, self._tasks))
        self._listen()

    def _listen(self) -> None:
        self.remove_stale()
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        old = os.umask(0o177)
        try:
            listening.bind(self._path)
        except OSError as error:
            listening.close()
            raise OwnFault(f"the daemon can't listen on {self._path}: {error.strerror}") from None
        finally:
            os.umask(old)
        self._listening.append(Listening(listening, self._serve, self._tasks))

    async def _serve_nameless(self, accepted: socket.socket) -> None:
        if not os.path.exists(self._path):
            log.warning("socket was taken away and is made again path=%s", self._path)
            old = self._listening[-1]
            try:
                self._listen()
                self._listening.remove(old)
                old.close()
            except OwnFault as error:
                log.error("not listening there again error=%s", error.message)
        await self._serve(accepted)

    def remove_stale(self) -> None:
        """Only a refused connection proves that nobody listens. Raises: OwnFault when somebody does."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            try:
                probe.connect(self._path)
            except FileNotFoundError:
                return
            except ConnectionRefusedError:
                try:
                    os.unlink(self._path)
                except OSError as error:
                    raise OwnFault(f"{self._path} is in the daemon's way: {error.strerror}. Remove it") from None
                return
            except OSError as error:
                raise OwnFault(f"{self._path} can't be tried: {error.strerror}") from None
        raise OwnFault(f"something that is not this acpmux listens on {self._path}")

    async def _serve(self, accepted: socket.socket) -> None:
        if not peer_is_user(accepted):
            accepted.close()
            return
        reader, writer = await asyncio.open_unix_connection(sock=accepted, limit=CHUNK_BYTES)
        connection = Connection(reader, writer, self._methods, self._tasks)
        self._connections.add(connection)
        try:
            await connection.run()
        finally:
            self._connections.discard(connection)
            writer.close()

    def close(self) -> None:
        for listening in self._listening:
            listening.close()
        for connection in tuple(self._connections):
            connection.hang_up()
        try:
            os.unlink(self._path)
        except FileNotFoundError:
            pass
