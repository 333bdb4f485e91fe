"""A clock that stands still until the test moves it."""

import asyncio


class ManualClock:
    def __init__(self) -> None:
        self._now = 1000.0
        self._sleepers: list[tuple[float, asyncio.Event]] = []

    def now(self) -> float:
        return self._now

    def wall_ms(self) -> int:
        return round(self._now * 1000)

    async def sleep(self, seconds: float) -> None:
        woken = asyncio.Event()
        sleeper = (self._now + seconds, woken)
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        self._sleepers.append(sleeper)
        try:
            await woken.wait()
        finally:
            self._sleepers = [other for other in self._sleepers if other is not sleeper]

    async def advance(self, seconds: float) -> None:
        """Moves on, waking sleepers in the order of their times; each gets its turn at its own time."""
        end = self._now + seconds
        await settle()
        while due := sorted(sleeper[0] for sleeper in self._sleepers if sleeper[0] <= end and not sleeper[1].is_set()):
            self._now = max(self._now, due[0])
            for at, woken in tuple(self._sleepers):
                if at <= self._now:
                    woken.set()
            await settle()
        self._now = end
        await settle()


async def settle() -> None:
    """Lets everything that can run now run."""
    for _ in range(20):
        await asyncio.sleep(0)
