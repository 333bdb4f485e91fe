import asyncio

from acpmux.hub.deadlines import Deadlines
from acpmux.model.ids import SessionId
from acpmux.runtime.tasks import Tasks
from kit.manual_clock import ManualClock, settle

A, B = SessionId("a"), SessionId("b")


def test_each_deadline_fires_once_at_its_time_and_a_replaced_one_never() -> None:
    async def story() -> None:
        clock, tasks = ManualClock(), Tasks()
        fired: list[tuple[float, str, int]] = []
        deadlines = Deadlines(clock, tasks.spawn, lambda s, epoch: fired.append((clock.now() - 1000, s, epoch)))
        tasks.spawn("run", deadlines.run())
        deadlines.arm(A, 1010, 1)
        deadlines.arm(B, 1005, 1)
        deadlines.arm(A, 1020, 2)
        await clock.advance(6)
        deadlines.arm(B, 1007, 2)
        deadlines.disarm(B)
        await clock.advance(60)
        assert fired == [(5, "b", 1), (20, "a", 2)]
        await tasks.close()

    asyncio.run(story())


def test_without_a_deadline_nothing_wakes() -> None:
    async def story() -> None:
        clock, tasks = ManualClock(), Tasks()
        tasks.spawn("run", Deadlines(clock, tasks.spawn, lambda *_: None).run())
        await settle()
        assert clock._sleepers == []
        await tasks.close()

    asyncio.run(story())
