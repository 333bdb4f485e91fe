"""A listening socket and those it lets in."""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable, Coroutine
from typing import Any

from acpmux.runtime.tasks import Tasks

BACKLOG = 128  # those that come while no descriptor is free
REST_S = 1.0  # without a free descriptor, asking again at once would take a core
LOG_S = 60.0
SCARCE = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

log = logging.getLogger(__name__)


class Listening:
    """Takes every client until `close`; without a free descriptor it rests, and says so once a minute."""

    def __init__(
        self, listening: socket.socket, serve: Callable[[socket.socket], Coroutine[Any, Any, None]], tasks: Tasks
    ) -> None:
        listening.setblocking(False)
        listening.listen(BACKLOG)
        self._listening: socket.socket | None = listening
        self._serve = serve
        self._tasks = tasks
        self._logged_at: float | None = None
        self._go_on()

    def _go_on(self) -> None:
        if self._listening is not None:
            asyncio.get_running_loop().add_reader(self._listening, self._accept, self._listening)

    def _accept(self, listening: socket.socket) -> None:
        try:
            accepted, _ = listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            if error.errno not in SCARCE:
                raise
            self._rest(listening, error)
            return
        self._tasks.spawn("client", self._serve(accepted))

    def _rest(self, listening: socket.socket, error: OSError) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(listening)
        loop.call_later(REST_S, self._go_on)
        if self._logged_at is None or loop.time() >= self._logged_at + LOG_S:
            self._logged_at = loop.time()
            log.error("no client can be taken error=%s", error.strerror)

    def close(self) -> None:
        if self._listening is not None:
            asyncio.get_running_loop().remove_reader(self._listening)
            self._listening.close()
            self._listening = None
