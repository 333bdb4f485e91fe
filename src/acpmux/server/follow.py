"""What one client follows of one session, and how far it has come."""

import asyncio
from typing import Any

from acpmux.hub.feed import Feed
from acpmux.model.ids import Seq


class Follow:
    """A feed with the mark of what was sent. `attached` holds the session awake."""

    def __init__(self, feed: Feed, attached: bool) -> None:
        self.feed = feed
        self.attached = attached
        self.task: asyncio.Task[Any] | None = None
        self._sent = feed.cursor
        self._moved = asyncio.Event()
        self._stopped = False

    def sent(self, seq: Seq) -> None:
        self._sent = seq
        self._moved.set()

    async def passed(self, seq: Seq) -> None:
        while self._sent < seq and not self._stopped:
            self._moved.clear()
            await self._moved.wait()

    def stop(self) -> None:
        self._stopped = True
        self._moved.set()
        self.feed.close()
        if self.task is not None:
            self.task.cancel()
