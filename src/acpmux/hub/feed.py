"""Live is replay: a reader is a cursor over the log, and the bell only says that there is more."""

import asyncio
from collections.abc import Callable

from acpmux.model.ids import Seq, SessionId
from acpmux.model.record import Stored
from acpmux.ports import EventLog


class Bell:
    """Rings after each commit of one session. It carries no data, so nothing can be lost between it and the log."""

    def __init__(self) -> None:
        self._callbacks: set[Callable[[], None]] = set()

    def ring(self) -> None:
        for callback in tuple(self._callbacks):
            callback()

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Calls `callback` at each ring until the returned function is called."""
        self._callbacks.add(callback)
        return lambda: self._callbacks.discard(callback)


class Feed:
    """Every record above `after`, once and in order, for one reader at its own speed."""

    def __init__(self, log: EventLog, session_id: SessionId, bell: Bell, after: Seq) -> None:
        self.cursor = after
        self._log = log
        self._session_id = session_id
        self._rung = asyncio.Event()
        self._unsubscribe = bell.subscribe(self._rung.set)

    async def next(self, limit: int) -> list[Stored]:
        """At most `limit` records above the cursor, which they move; waits until there is one."""
        while True:
            self._rung.clear()
            rows = await self._log.read(self._session_id, self.cursor, limit)
            if rows:
                self.cursor = rows[-1].seq
                return rows
            await self._rung.wait()

    def close(self) -> None:
        self._unsubscribe()
