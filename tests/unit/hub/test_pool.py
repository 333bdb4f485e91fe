"""Hosts kept ready: how many, for how long, and what their ends mean."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from acpmux.errors import BudgetSpent, LaunchFailed
from acpmux.hub.launch import kept_ready
from acpmux.hub.pool import REFILL_S, UNUSED_S, Kind, Pool
from acpmux.model.config import Profile, StartConfig
from acpmux.model.ids import HostId, SessionId
from acpmux.model.process import Server
from acpmux.ports import LaunchSpec
from acpmux.runtime.tasks import Tasks
from kit.fake_host import FakeLauncher, FakeLink, usual
from kit.manual_clock import ManualClock, settle

RSS = 100
SERVER = Server("time", "clock", (), "nonce:time", "acp")


def wanted(session: str = "s1", **env: str) -> LaunchSpec:
    return LaunchSpec(
        HostId(f"h-{session}"), SessionId(session), ("agent",), "/work",
        {"PATH": "/bin", "ACPMUX_HOST": f"h-{session}", "ACPMUX_SESSION_ID": session, **env}, (), (SERVER,),
    )  # fmt: skip


class Link(FakeLink):
    silent = False

    async def request(self, kind: str, budget_s: float, /, **header: Any) -> Mapping[str, Any]:
        if kind == "census" and self.silent:
            raise BudgetSpent("no census")
        told = await super().request(kind, budget_s, **header)
        return {**told, "processes": [{"rssBytes": RSS}]} if kind == "census" else told


class Launcher(FakeLauncher):
    silent = False

    async def start(self, spec: LaunchSpec, events: Any) -> FakeLink:
        if self.fail:
            raise self.fail.pop(0)
        self.links.append(Link(spec, events, usual))
        self.links[-1].silent = self.silent  # type: ignore[reportAttributeAccessIssue]
        return self.links[-1]


class World:
    def __init__(self, tasks: Tasks, size: int, memory: int) -> None:
        self.clock, self.launcher = ManualClock(), Launcher()
        self.pool = Pool(self.launcher, self.clock, tasks.spawn, StartConfig(), memory)
        self.kind = Kind("demo", size, Profile("demo", "Demo", ("agent",)), kept_ready(wanted()))

    async def fill(self) -> None:
        self.pool.keep([self.kind])
        await settle()


def play(story: Callable[[World], Awaitable[None]], size: int = 1, memory: int = 10_000) -> None:
    async def run() -> None:
        tasks = Tasks()
        try:
            await story(World(tasks, size, memory))
        finally:
            await tasks.close()

    asyncio.run(run())


def test_ready_host_knows_no_session_and_is_told_of_it_when_it_is_taken() -> None:
    async def story(world: World) -> None:
        await world.fill()
        spec = world.launcher.links[0].spec
        assert (spec.session_id, spec.cwd, spec.servers, spec.direct) == ("", "/", (), True)
        assert spec.env == {"PATH": "/bin", "ACPMUX_HOST": spec.host_id}
        harness = await world.pool.take(wanted())
        assert harness is not None and harness.host_id == spec.host_id and harness.pooled
        told = {"session": "s1", "cwd": "/work", "servers": [list(SERVER)], "direct": False}
        assert world.launcher.links[0].taken == [told]

    play(story)


def test_start_that_would_differ_takes_none() -> None:
    async def story(world: World) -> None:
        await world.fill()
        assert await world.pool.take(wanted(PATH="/other")) is None
        assert world.launcher.links[0].taken == []

    play(story)


def test_as_many_as_were_asked_for_and_one_more_for_each_that_is_taken() -> None:
    async def story(world: World) -> None:
        await world.fill()
        assert len(world.pool.rows()) == 2
        assert await world.pool.take(wanted())
        assert len(world.pool.rows()) == 1
        await world.clock.advance(REFILL_S)
        assert len(world.pool.rows()) == 2 and len(world.launcher.links) == 3

    play(story, size=2)


def test_all_together_hold_an_eighth_of_the_memory_at_most() -> None:
    async def story(world: World) -> None:
        await world.fill()
        assert len(world.pool.rows()) == 3

    play(story, size=8, memory=3 * 8 * RSS)


def test_unused_one_ends_by_the_census_and_the_next_use_starts_another() -> None:
    async def story(world: World) -> None:
        await world.fill()
        await world.clock.advance(UNUSED_S)
        link = world.launcher.links[0]
        assert world.pool.rows() == [] and len(link.retires) == 1 and link.closed
        await world.clock.advance(UNUSED_S)
        assert len(world.launcher.links) == 1
        assert await world.pool.take(wanted()) is None
        await world.clock.advance(REFILL_S)
        assert len(world.pool.rows()) == 1

    play(story)


def test_refused_end_leaves_it_ready() -> None:
    async def story(world: World) -> None:
        await world.fill()
        link = world.launcher.links[0]
        link.answer = lambda: {"t": "refused", "kind": "held", "reason": "somebody", "blockers": []}
        await world.clock.advance(UNUSED_S)
        assert len(world.pool.rows()) == 1
        assert await world.pool.take(wanted())

    play(story)


def test_one_that_can_not_be_started_is_tried_again_at_the_next_use() -> None:
    async def story(world: World) -> None:
        world.launcher.fail = [LaunchFailed("no program")]
        await world.fill()
        await world.clock.advance(UNUSED_S)
        assert world.pool.rows() == [] and world.launcher.links == []
        assert await world.pool.take(wanted()) is None
        await world.clock.advance(REFILL_S)
        assert len(world.pool.rows()) == 1

    play(story)


def test_lost_one_is_not_taken() -> None:
    async def story(world: World) -> None:
        await world.fill()
        world.launcher.links[0].events.lost("its host died")
        assert await world.pool.take(wanted()) is None

    play(story)


def test_close_ends_them_all_and_starts_no_more() -> None:
    async def story(world: World) -> None:
        await world.fill()
        assert await world.pool.take(wanted())
        await world.pool.close()
        assert [link.closed for link in world.launcher.links] == [False, True]
        await world.clock.advance(REFILL_S)
        assert len(world.launcher.links) == 2

    play(story, size=2)


def test_one_whose_memory_can_not_be_told_is_ended_and_not_kept() -> None:
    async def story(world: World) -> None:
        world.launcher.silent = True
        await world.fill()
        assert world.pool.rows() == [] and world.launcher.links[0].closed

    play(story)


def test_one_that_is_lost_while_it_is_retired_is_ended_once() -> None:
    async def story(world: World) -> None:
        await world.fill()
        link = world.launcher.links[0]
        link.held = asyncio.get_running_loop().create_future()
        await world.clock.advance(UNUSED_S)
        link.events.lost("its host died")
        await settle()
        assert link.closed and world.pool.rows() == []

    play(story)
