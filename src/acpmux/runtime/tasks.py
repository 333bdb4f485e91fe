"""Every task has a name and an owner."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

log = logging.getLogger(__name__)


class Tasks:
    """Owns tasks until they end; `close` ends those that have not.

    An error that escapes one is a fault of ours, and logged.
    """

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def spawn(self, name: str, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("task failed name=%s", task.get_name(), exc_info=task.exception())

    async def close(self) -> None:
        """Cancels what still runs and waits for it."""
        while self._running:
            running = tuple(self._running)
            for task in running:
                task.cancel()
            await asyncio.wait(running)
