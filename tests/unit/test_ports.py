"""The doubles keep what the ports promise. The log's contract runs over its double and the real one in
tests/integration/test_store.py."""

import asyncio

import pytest

from acpmux.errors import StoreError
from acpmux.model.ids import Seq, SessionId
from kit.faulty import Faulty
from kit.manual_clock import ManualClock, settle
from kit.memory_log import MemoryLog

S = SessionId("s")


def test_sleepers_wake_in_the_order_of_their_times_each_at_its_own() -> None:
    async def story() -> None:
        clock, woken = ManualClock(), list[tuple[str, float]]()
        began = clock.now()

        async def sleeper(name: str, *naps: float) -> None:
            for nap in naps:
                await clock.sleep(nap)
                woken.append((name, clock.now() - began))

        tasks = [asyncio.ensure_future(sleeper(*told)) for told in (("late", 5), ("early", 1, 3), ("never", 99))]
        await clock.advance(6)
        assert woken == [("early", 1), ("early", 4), ("late", 5)]
        assert clock.now() - began == 6
        tasks[2].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(story())


def test_time_stands_still_until_it_is_moved() -> None:
    async def story() -> None:
        clock = ManualClock()
        before = clock.now(), clock.wall_ms()
        task = asyncio.ensure_future(clock.sleep(0.001))
        await settle()
        assert not task.done() and (clock.now(), clock.wall_ms()) == before
        await clock.advance(0.001)
        assert task.done()

    asyncio.run(story())


def test_sleeper_that_was_cancelled_holds_no_other() -> None:
    async def story() -> None:
        clock = ManualClock()
        gone, kept = (asyncio.ensure_future(clock.sleep(1)) for _ in range(2))
        await settle()
        gone.cancel()
        await clock.advance(1)
        assert gone.cancelled() and kept.done()

    asyncio.run(story())


def test_exactly_the_named_call_fails_and_does_not_reach_the_port() -> None:
    async def story() -> None:
        log = Faulty(MemoryLog(), 2, lambda: StoreError("the disk is full"))
        assert await log.last_seq(S) == 0
        with pytest.raises(StoreError):
            await log.read(S, Seq(0), 1)
        assert await log.read(S, Seq(0), 1) == []
        assert log.calls == 3

    asyncio.run(story())


def test_calls_of_other_methods_are_not_counted_when_some_are_named() -> None:
    async def story() -> None:
        log = Faulty(MemoryLog(), 1, lambda: StoreError("x"), only=("purge",))
        await log.last_seq(S)
        with pytest.raises(StoreError):
            await log.purge(S)
        assert log.calls == 1 and log.saved == {}

    asyncio.run(story())


def test_calls_that_wait_for_nothing_fail_too() -> None:
    clock = Faulty(ManualClock(), 1, lambda: OSError("no clock"))
    with pytest.raises(OSError):
        clock.now()
    assert clock.now() == 1000
