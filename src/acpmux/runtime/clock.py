"""The machine's time, and the only place that asks for it."""

import asyncio
import time


class SystemClock:
    """Implements `ports.Clock`."""

    def now(self) -> float:
        return time.monotonic()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
