import asyncio
import time

from acpmux.ports import Clock
from acpmux.runtime.clock import SystemClock


def test_monotonic_time_never_goes_back_and_wall_time_is_the_machines() -> None:
    clock: Clock = SystemClock()
    times = [clock.now() for _ in range(100)]
    assert times == sorted(times)
    before = time.time_ns() // 1_000_000
    assert before <= clock.wall_ms() <= time.time_ns() // 1_000_000


def test_sleep_lets_others_run_and_returns_no_sooner() -> None:
    async def story() -> None:
        clock, ran = SystemClock(), asyncio.Event()
        asyncio.get_running_loop().call_soon(ran.set)
        began = clock.now()
        await clock.sleep(0.001)
        assert ran.is_set() and clock.now() - began >= 0.001

    asyncio.run(story())
