import asyncio
import logging

import pytest

from acpmux.runtime.tasks import Tasks
from kit.manual_clock import settle


def test_task_has_its_name_and_gives_its_result() -> None:
    async def story() -> None:
        async def work() -> int:
            return 7

        task = Tasks().spawn("reader:1", work())
        assert task.get_name() == "reader:1" and await task == 7

    asyncio.run(story())


def test_error_that_escapes_is_logged_with_the_tasks_name(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async def work() -> None:
            raise KeyError("lost")

        tasks = Tasks()
        tasks.spawn("feed:c1", work())
        await settle()
        await tasks.close()

    asyncio.run(story())
    (told,) = caplog.records
    assert told.levelno == logging.ERROR and told.getMessage() == "task failed name=feed:c1"
    assert told.exc_info is not None and isinstance(told.exc_info[1], KeyError)


def test_close_ends_all_even_those_that_begin_while_it_waits(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        tasks, ended = Tasks(), list[str]()

        async def forever(name: str) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(name)
                if name == "parent":
                    tasks.spawn("child", forever("child"))
                    await settle()

        tasks.spawn("parent", forever("parent"))
        await settle()
        await tasks.close()
        assert ended == ["parent", "child"]
        await tasks.close()

    asyncio.run(story())
    assert caplog.records == []  # a cancellation is no fault
