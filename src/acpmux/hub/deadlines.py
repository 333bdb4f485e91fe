"""One task on one clock waits for the earliest deadline of all sessions; nothing polls."""

import asyncio
import heapq
from collections.abc import Callable

from acpmux.model.ids import SessionId
from acpmux.ports import Clock, Spawn


class Deadlines:
    """At most one deadline a session: setting another replaces it."""

    def __init__(self, clock: Clock, spawn: Spawn, due: Callable[[SessionId, int], None]) -> None:
        self._clock = clock
        self._spawn = spawn
        self._due = due
        self._current: dict[SessionId, tuple[float, int]] = {}
        self._heap: list[tuple[float, SessionId, int]] = []
        self._changed = asyncio.Event()

    def arm(self, session_id: SessionId, at: float, epoch: int) -> None:
        """Calls `due(session_id, epoch)` at `at` (monotonic seconds)."""
        self._current[session_id] = (at, epoch)
        heapq.heappush(self._heap, (at, session_id, epoch))
        if self._heap[0][1] == session_id:
            self._changed.set()

    def disarm(self, session_id: SessionId) -> None:
        self._current.pop(session_id, None)

    async def run(self) -> None:
        """Runs until it is cancelled. With no deadline it sleeps without a wake-up of its own."""
        while True:
            self._changed.clear()
            at = self._fire_and_peek()
            if at is None:
                await self._changed.wait()
                continue
            sleeper = self._spawn("deadline", self._clock.sleep(max(0.0, at - self._clock.now())))
            change = self._spawn("deadline-change", self._changed.wait())
            try:
                await asyncio.wait({sleeper, change}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                sleeper.cancel()
                change.cancel()

    def _fire_and_peek(self) -> float | None:
        """Fires what is due and returns the earliest deadline that is not."""
        while self._heap:
            at, session_id, epoch = self._heap[0]
            if self._current.get(session_id) != (at, epoch):
                heapq.heappop(self._heap)  # replaced or disarmed
            elif at <= self._clock.now():
                heapq.heappop(self._heap)
                del self._current[session_id]
                self._due(session_id, epoch)
            else:
                return at
        return None
