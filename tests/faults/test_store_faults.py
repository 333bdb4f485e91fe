"""Each commit of a session's life fails once: whoever asked is told, asks again, and nothing is lost."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from acpmux.errors import StoreError, UnknownAgent
from acpmux.hub.answers import Outcome
from acpmux.hub.hub import Hub, NewSession, Parts
from acpmux.hub.launch import Surroundings
from acpmux.model.config import Config, Profile
from acpmux.model.ids import PromptId
from acpmux.model.session import Prompt, State
from acpmux.rules import messages as m
from acpmux.runtime.tasks import Tasks
from kit.fake_host import FakeLauncher
from kit.faulty import Faulty
from kit.manual_clock import ManualClock, settle
from kit.memory_log import MemoryLog

PROFILE = Profile("demo", "Demo", ("agent",))
LIFE = ["created", "waking", "woke", "prompted", "turn_started", "update", "turn_ended", "hibernating", "hibernated"]


def find(name: str) -> Profile:
    if name != "demo":
        raise UnknownAgent(name)
    return PROFILE


async def twice(clock: ManualClock, ask: Callable[[], Awaitable[Any]]) -> Any:
    """Asks, and once more when the store refused, as a client does."""
    for last in (False, True):
        task = asyncio.ensure_future(ask())
        for _ in range(4):  # what a harness said is tried again after a second
            await clock.advance(1)
        try:
            return await asyncio.wait_for(task, 5)
        except StoreError:
            if last:
                raise
    raise AssertionError("not reached")


async def live(log: Any) -> MemoryLog:
    """New, one prompt with an update, sleep. Checks what is stored in the end."""
    tasks, clock, launcher = Tasks(), ManualClock(), FakeLauncher()
    around = Surroundings({"PATH": "/bin"}, "/sock")
    hub = Hub(Parts(Config(), log, clock, launcher, tasks.spawn, around, {"demo": PROFILE}, find, lambda p: "x"))
    try:
        actor = await twice(clock, lambda: hub.create(NewSession("demo", "one", "/tmp", None, None, False, (), None)))
        prompt = Prompt(PromptId("p1"), b'[{"type":"text","text":"hi"}]', 0)

        async def turn() -> Any:
            asked = asyncio.ensure_future(actor.ask(lambda token: m.PromptAsked(token, prompt)))
            await settle()
            if "session/prompt" in launcher.links[-1].methods() and actor.session.state is State.RUNNING:
                launcher.links[-1].update(
                    sessionUpdate="agent_message_chunk", content={"type": "text", "text": "hello"}
                )
                launcher.links[-1].finish("session/prompt", result={"stopReason": "end_turn"})
            return await asked

        outcome = await twice(clock, turn)
        assert isinstance(outcome, Outcome) and outcome.ok
        await twice(clock, lambda: actor.ask(m.SleepAsked))
        assert actor.session.state is State.HIBERNATED
        stored: MemoryLog = log.port
        rows = stored.rows[actor.session_id]
        assert [row.record.kind.value for row in rows] == LIFE
        assert stored.saved[actor.session_id] == actor.session.checkpoint
        assert sum(link.methods().count("session/prompt") for link in launcher.links) == 1
        return stored
    finally:
        await tasks.close()


def faulty(fail_at: int) -> Faulty:
    return Faulty(MemoryLog(), fail_at, lambda: StoreError("the disk is full"), only=("commit",))


def test_commit_that_fails_once_loses_nothing_and_runs_nothing_twice() -> None:
    async def story() -> None:
        whole = faulty(0)
        await live(whole)
        assert whole.calls > 5
        for fail_at in range(1, whole.calls + 1):
            await live(faulty(fail_at))

    asyncio.run(story())
