"""The host's clock: what is to be called when (monotonic seconds)."""

import heapq
import time
from collections.abc import Callable


class Timer:
    __slots__ = ("at", "call")

    def __init__(self, at: float, call: Callable[[], None] | None) -> None:
        self.at = at
        self.call = call

    def __lt__(self, other: "Timer") -> bool:
        return self.at < other.at


class Timers:
    """A heap of calls. A cancelled one stays in it, empty, until its time."""

    def __init__(self) -> None:
        self._heap: list[Timer] = []

    def after(self, seconds: float, call: Callable[[], None]) -> Timer:
        timer = Timer(time.monotonic() + seconds, call)
        heapq.heappush(self._heap, timer)
        return timer

    def cancel(self, timer: Timer) -> None:
        timer.call = None

    def left(self, timer: Timer) -> float:
        """Seconds until it is due, 0 when it is or was cancelled."""
        return max(0.0, timer.at - time.monotonic()) if timer.call else 0.0

    def wait_s(self) -> float | None:
        """How long a selector may sleep; None for ever."""
        while self._heap and self._heap[0].call is None:
            heapq.heappop(self._heap)
        return max(0.0, self._heap[0].at - time.monotonic()) if self._heap else None

    def run_due(self) -> None:
        now = time.monotonic()
        while self._heap and self._heap[0].at <= now:
            call = heapq.heappop(self._heap).call
            if call is not None:
                call()
