import asyncio

from acpmux.hub.feed import Bell, Feed
from acpmux.model.ids import Seq, SessionId
from acpmux.model.record import Kind, Record, Stored
from acpmux.model.session import Checkpoint
from kit.memory_log import MemoryLog

S = SessionId("s")


def test_reader_gets_every_record_once_in_order_at_its_own_speed() -> None:
    async def story() -> None:
        log, bell = MemoryLog(), Bell()
        await log.commit(S, [], Checkpoint(S, "one", "demo", "/", 0, 0))
        feeds = [Feed(log, S, bell, Seq(0)), Feed(log, S, bell, Seq(3))]
        got: list[list[int]] = [[], []]

        async def read(index: int, page: int) -> None:
            while len(got[index]) < (10 if index == 0 else 7):
                got[index] += [row.seq for row in await feeds[index].next(page)]
                await asyncio.sleep(0)

        async def write() -> None:
            for number in range(1, 11):
                await log.commit(S, [Stored(Seq(number), Record(Kind.UPDATE, b"{}", "c", 0))], None)
                bell.ring()
                await asyncio.sleep(0)

        await asyncio.gather(read(0, 1), read(1, 4), write())
        assert got == [list(range(1, 11)), list(range(4, 11))]
        for feed in feeds:
            feed.close()

    asyncio.run(story())
