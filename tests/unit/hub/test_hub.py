"""The engine with doubles for the world: what happens between a client's request and a harness's line."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from acpmux.errors import (
    BudgetSpent,
    HarnessError,
    HostRefused,
    LaunchFailed,
    NameTaken,
    NoSuchSession,
    StoreError,
    UnknownAgent,
)
from acpmux.hub.actor import Actor
from acpmux.hub.answers import Outcome
from acpmux.hub.hub import Hub, NewSession, Parts
from acpmux.hub.launch import Surroundings
from acpmux.model.config import Config, Profile
from acpmux.model.ids import ClientId, PromptId, Seq
from acpmux.model.session import McpServer, Prompt, Session, State
from acpmux.rules import lifecycle
from acpmux.rules import messages as m
from acpmux.runtime.tasks import Tasks
from kit.fake_host import FakeLauncher, FakeLink, usual
from kit.manual_clock import ManualClock, settle
from kit.memory_log import MemoryLog

PROFILE = Profile("demo", "Demo", ("agent",), install="pip install agent")


def find(name: str) -> Profile:
    if name != "demo":
        raise UnknownAgent(name)
    return PROFILE


class World:
    def __init__(self, tasks: Tasks, log: MemoryLog | None = None, launcher: FakeLauncher | None = None) -> None:
        self.clock = ManualClock()
        self.log = log or MemoryLog()
        self.launcher = launcher or FakeLauncher()
        around = Surroundings({"PATH": "/bin", "SECRET": "x"}, "/sock")
        self.hub = Hub(
            Parts(
                Config(),
                self.log,
                self.clock,
                self.launcher,
                tasks.spawn,
                around,
                {"demo": PROFILE},
                find,
                lambda p: "x",
            )
        )
        tasks.spawn("deadlines", self.hub.deadlines.run())

    @property
    def link(self) -> Any:
        return self.launcher.links[-1]

    async def new(self, name: str = "one", servers: tuple[McpServer, ...] = ()) -> Actor:
        return await self.hub.create(NewSession("demo", name, "/tmp", None, None, False, servers, None))

    async def prompt(self, actor: Actor, prompt_id: str = "p1") -> "asyncio.Task[Any]":
        prompt = Prompt(PromptId(prompt_id), b'[{"type":"text","text":"hi"}]', 0)
        task = asyncio.ensure_future(actor.ask(lambda token: m.PromptAsked(token, prompt)))
        await settle()
        return task


def play(story: Callable[[World], Awaitable[None]], **parts: Any) -> None:
    async def run() -> None:
        tasks = Tasks()
        try:
            await story(World(tasks, **parts))
        finally:
            await tasks.close()

    asyncio.run(run())


def test_prompt_goes_down_and_its_answer_comes_back_after_its_updates() -> None:
    async def story(world: World) -> None:
        actor = await world.new()
        waiting = await world.prompt(actor)
        world.link.update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": "hello"})
        world.link.finish("session/prompt", result={"stopReason": "end_turn", "odd": None})
        outcome = await waiting
        assert (
            isinstance(outcome, Outcome)
            and outcome.ok
            and outcome.payload == b'{"stopReason": "end_turn", "odd": null}'
        )
        kinds = [row.record.kind.value for row in world.log.rows[actor.session_id]]
        assert kinds == ["created", "waking", "woke", "prompted", "turn_started", "update", "turn_ended"]
        assert world.link.acked == 4

    play(story)


def test_servers_get_the_sessions_marker_and_the_harness_our_variables() -> None:
    async def story(world: World) -> None:
        actor = await world.new(servers=(McpServer("time", "uvx", ("x",), (("K", "v"),)),))
        spec = world.link.spec
        asked = next(told for told in world.link.sent if told.get("method") == "session/new")
        env = {item["name"]: item["value"] for item in asked["params"]["mcpServers"][0]["env"]}
        assert env == {"K": "v", "ACPMUX_MCP": spec.servers[0].marker}
        assert spec.env["ACPMUX_SESSION_ID"] == actor.session_id and spec.env["ACPMUX_SOCKET"] == "/sock"
        assert b"SECRET" not in repr(world.log.saved).encode()

    play(story)


def test_idle_session_is_retired_after_two_minutes_and_not_before() -> None:
    async def story(world: World) -> None:
        actor = await world.new()
        await world.clock.advance(119.9)
        assert world.link.retires == []
        await world.clock.advance(0.2)
        assert actor.session.state is State.HIBERNATED
        assert world.link.retires[0]["after"] == 2 and world.link.closed

    play(story)


def test_refused_retirement_is_asked_again_a_period_later() -> None:
    async def story(world: World) -> None:
        actor = await world.new()
        blockers = [[42, 1, "vite", "no server"]]
        world.link.answer = lambda: {
            "t": "refused",
            "kind": "held",
            "reason": "vite",
            "retry": False,
            "blockers": blockers,
        }
        await world.clock.advance(121)
        assert actor.session.state is State.READY
        await world.clock.advance(120)
        assert len(world.link.retires) == 2
        with pytest.raises(HostRefused) as refused:
            await actor.ask(m.SleepAsked)
        assert refused.value.blockers == [{"pid": 42, "command": "vite", "why": "no server"}]

    play(story)


def test_period_starts_when_what_held_it_has_ended() -> None:
    async def story(world: World) -> None:
        await world.new()
        world.link.answer = lambda: {
            "t": "refused",
            "kind": "held",
            "reason": "vite",
            "retry": False,
            "blockers": [[42, 1, "v", "w"]],
        }
        await world.clock.advance(121)
        await world.clock.advance(100)
        world.link.events.freed()
        await world.clock.advance(119)
        assert len(world.link.retires) == 1
        await world.clock.advance(2)
        assert len(world.link.retires) == 2

    play(story)


def test_prompt_in_the_middle_of_a_retirement_is_answered_once_after_a_wake() -> None:
    async def story(world: World) -> None:
        actor = await world.new()
        first = world.link
        first.held = asyncio.get_running_loop().create_future()
        asleep = asyncio.ensure_future(actor.ask(m.SleepAsked))
        await settle()
        waiting = await world.prompt(actor)
        assert first.cancelled == 1 and "session/prompt" not in first.methods()
        first.held.set_result({"t": "retired", "ended": [], "left": []})
        await settle()
        assert world.link is not first
        world.link.finish("session/prompt", result={"stopReason": "end_turn"})
        assert (await waiting).ok
        await asleep

    play(story)


def test_prompt_between_two_looks_at_an_unstable_table_keeps_the_harness() -> None:
    async def story(world: World) -> None:
        actor = await world.new()
        unstable = {"t": "refused", "kind": "unknown", "reason": "unstable", "retry": True, "blockers": []}
        world.link.answer = lambda: unstable
        asleep = asyncio.ensure_future(actor.ask(m.SleepAsked))
        await settle()
        world.link.answer = lambda: {"t": "retired", "ended": [], "left": []}
        waiting = await world.prompt(actor)
        await world.clock.advance(1)
        assert len(world.link.retires) == 1 and len(world.launcher.links) == 1
        world.link.finish("session/prompt", result={"stopReason": "end_turn"})
        assert (await waiting).ok
        with pytest.raises(HostRefused):
            await asleep

    play(story)


def test_late_words_of_an_ended_harness_change_nothing() -> None:
    async def story(world: World) -> None:
        actor = await world.new()
        old = world.link
        await actor.ask(m.SleepAsked)
        await actor.ask(m.WakeAsked)
        before = actor.seq
        old.update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": "ghost"})
        old.events.exited({"code": 1})
        await settle()
        assert actor.seq == before and actor.session.state is State.READY

    play(story)


def test_start_that_fails_twice_sleeps_with_the_reason_and_the_prompt_kept() -> None:
    async def story(world: World) -> None:
        actor = await world.new()
        await actor.ask(m.SleepAsked)
        world.launcher.replies = lambda method, params: {"error": {"code": -32000, "message": "log in"}}
        waiting = await world.prompt(actor)
        await world.clock.advance(1.5)
        with pytest.raises(HarnessError, match="sign in first"):
            await waiting
        assert len(world.launcher.links) == 3
        assert actor.session.state is State.HIBERNATED and len(actor.session.checkpoint.queue) == 1

    play(story)


def test_missing_program_is_not_tried_twice_and_says_how_to_install() -> None:
    async def story(world: World) -> None:
        world.launcher.fail = [LaunchFailed("the program 'agent' is not on PATH")]
        with pytest.raises(LaunchFailed, match="pip install agent"):
            await world.new()
        await settle()
        assert world.hub.actors() == [] and world.log.saved == {}

    play(story)


def test_prompt_that_can_not_be_stored_is_refused_and_not_sent() -> None:
    async def story(world: World) -> None:
        actor = await world.new()
        world.log.fail_next = 1
        with pytest.raises(StoreError):
            await (await world.prompt(actor))
        assert "session/prompt" not in world.link.methods()

    play(story)


def test_session_that_can_not_be_stored_is_not_there_and_its_name_is_free() -> None:
    async def story(world: World) -> None:
        world.log.fail_next = 1
        with pytest.raises(StoreError):
            await world.new("one")
        assert world.hub.actors() == []
        assert (await world.new("one")).session.state is State.READY

    play(story)


def test_census_that_meets_the_sleep_lists_what_is_left() -> None:
    async def story(world: World) -> None:
        actor = await world.new()
        world.launcher.left = [{"pid": 7, "ppid": 1, "argv": ["vite"]}]
        world.link.closed = True
        assert (await actor.effects.census())["processes"] == world.launcher.left

    play(story)


def test_removal_is_told_when_nothing_is_stored_and_the_name_is_free() -> None:
    async def story(world: World) -> None:
        actor = await world.new("one")
        world.log.purging.clear()
        first = asyncio.ensure_future(actor.ask(lambda token: m.StopAsked(token, purge=True)))
        second = asyncio.ensure_future(actor.ask(lambda token: m.StopAsked(token, purge=True)))
        await settle()
        late = asyncio.ensure_future(actor.ask(lambda token: m.StopAsked(token, purge=True)))
        await settle()
        assert not first.done() and not second.done()
        world.log.purging.set()
        await first
        await second
        with pytest.raises(NoSuchSession):
            await late
        with pytest.raises(NoSuchSession):
            await actor.ask(m.WakeAsked)
        assert actor.session_id not in world.log.rows
        await world.new("one")

    play(story)


def test_removal_that_can_not_be_stored_is_told_and_can_be_asked_again() -> None:
    async def story(world: World) -> None:
        actor = await world.new("one")
        await actor.ask(lambda token: m.StopAsked(token, close=True))
        world.log.fail_next = 1
        with pytest.raises(StoreError):
            await actor.ask(lambda token: m.StopAsked(token, purge=True))
        await actor.ask(lambda token: m.StopAsked(token, purge=True))
        assert world.hub.actors() == []

    play(story)


def test_log_that_can_not_be_read_fails_the_prompt_and_not_the_session() -> None:
    async def story(world: World) -> None:
        actor = await world.new()
        read_prompt = world.log.read_prompt

        async def broken(*_: object) -> list[Any]:
            raise StoreError("the disk is broken")

        world.log.read_prompt = broken  # type: ignore[method-assign]
        with pytest.raises(StoreError):
            await (await world.prompt(actor))
        world.log.read_prompt = read_prompt  # type: ignore[method-assign]
        waiting = await world.prompt(actor, "p2")
        world.link.finish("session/prompt", result={"stopReason": "end_turn"})
        assert (await waiting).ok

    play(story)


def test_what_the_harness_said_is_stored_after_all_when_the_disk_has_room_again() -> None:
    async def story(world: World) -> None:
        actor = await world.new()
        world.log.fail_next = 2
        world.link.update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": "kept"})
        await world.clock.advance(2.5)
        assert world.log.rows[actor.session_id][-1].record.kind.value == "update"
        assert actor.session.state is State.READY

    play(story)


async def nobody_else(adopted: frozenset[str]) -> None: ...


def test_repeated_prompt_id_gets_the_first_outcome_also_after_a_restart() -> None:
    log = MemoryLog()

    async def first(world: World) -> None:
        actor = await world.new()
        waiting = await world.prompt(actor)
        world.link.finish("session/prompt", result={"stopReason": "end_turn"})
        await waiting

    async def second(world: World) -> None:
        await world.hub.recover(nobody_else)
        actor = world.hub.find("one")
        outcome = await (await world.prompt(actor))
        assert outcome.ok and world.launcher.links == []

    play(first, log=log)
    play(second, log=log)


def test_turn_goes_on_under_the_next_daemon_and_its_answer_is_known(tmp_path: object) -> None:
    log, links = MemoryLog(), list[FakeLink]()

    async def first(world: World) -> None:
        actor = await world.new()
        await world.prompt(actor)
        world.link.update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": "one"})
        await settle()
        links.append(world.link)

    async def second(world: World) -> None:
        world.launcher.adoptable = links[0]
        links[0].closed = False
        sent = len(links[0].sent)
        await world.hub.recover(nobody_else)
        actor = world.hub.find("one")
        assert actor.session.state is State.RUNNING and world.launcher.links == []
        again = links[0].sent[sent:]  # the host drops it: the same key and the same id as the first time
        first_time = next(told for told in links[0].sent if told["method"] == "session/prompt")
        assert again == [first_time] and links[0].keys[-1] == f"prompt:{first_time['id']}"
        waiting = await world.prompt(actor)  # the same id: it is told the outcome of the one turn
        links[0].finish("session/prompt", result={"stopReason": "end_turn"})
        assert (await waiting).ok and actor.session.state is State.READY

    play(first, log=log)
    play(second, log=log)


def test_daemon_start_wakes_nothing_and_writes_unknown_outcomes() -> None:
    log = MemoryLog()

    async def first(world: World) -> None:
        await world.prompt(await world.new())

    async def second(world: World) -> None:
        await world.hub.recover(nobody_else)
        actor = world.hub.find("one")
        assert world.launcher.links == [] and actor.session.state is State.HIBERNATED
        failed = log.rows[actor.session_id][-2].record
        assert failed.kind.value == "turn_failed" and b"outcome_unknown" in failed.body

    play(first, log=log)
    play(second, log=log)


def test_no_more_than_four_wakes_run_at_a_time() -> None:
    def slow(method: str, params: dict[str, Any]) -> Any:
        return None if method == "initialize" else usual(method, params)

    async def story(world: World) -> None:
        making = [asyncio.ensure_future(world.new(f"n{number}")) for number in range(6)]
        await settle()
        assert len(world.launcher.links) == 4
        world.link.finish("initialize", result={"agentCapabilities": {}})
        await settle()
        assert len(world.launcher.links) == 5
        for task in making:
            task.cancel()
        await asyncio.wait(making)

    play(story, launcher=FakeLauncher(slow))


def test_attached_client_holds_and_detaching_starts_the_period() -> None:
    async def story(world: World) -> None:
        actor = await world.new()
        actor.tell(m.ClientAttached(ClientId("c")))
        await world.clock.advance(1000)
        assert actor.session.state is State.READY
        actor.tell(m.ClientDetached(ClientId("c")))
        await world.clock.advance(121)
        assert actor.session.state is State.HIBERNATED

    play(story)


def test_names_are_unique_and_unknown_ones_suggest() -> None:
    async def story(world: World) -> None:
        await world.new("website")
        with pytest.raises(NameTaken):
            await world.new("website")
        with pytest.raises(NoSuchSession, match="website"):
            world.hub.find("webiste")

    play(story)


def test_shutdown_leaves_agents_to_the_next_daemon_or_ends_them() -> None:
    async def story(world: World) -> None:
        actor = await world.new()
        assert await world.hub.shutdown(False, False) == []
        assert actor.session.state is State.READY
        assert await world.hub.shutdown(True, False) == []
        assert actor.session.state is State.HIBERNATED

    play(story)


def test_fault_of_ours_costs_the_word_that_met_it_and_never_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    step = lifecycle.step

    def faulty(session: Session, event: m.Event, *rest: Any) -> Any:
        if isinstance(event, m.HarnessSaid) and isinstance(event.said, m.Update) and b"poison" in event.said.params:
            raise ZeroDivisionError
        return step(session, event, *rest)

    async def story(world: World) -> None:
        actor = await world.new()
        asked = await world.prompt(actor)
        for text in ("before", "poison", "after"):
            world.link.update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": text})
        world.link.finish("session/prompt", result={"stopReason": "end_turn"})
        await asyncio.wait_for(asked, 5)
        bodies = [row.record.body for row in await world.log.read(actor.session_id, Seq(0), 100)]
        assert sum(b'"text":"before"' in body.replace(b" ", b"") for body in bodies) == 1
        assert sum(b"acpmux failed at this Update" in body for body in bodies) == 1
        assert sum(b'"text":"after"' in body.replace(b" ", b"") for body in bodies) == 1

    monkeypatch.setattr(lifecycle, "step", faulty)
    play(story)


def test_answer_of_a_turn_that_can_not_be_stored_ends_it_as_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    step = lifecycle.step

    def faulty(session: Session, event: m.Event, *rest: Any) -> Any:
        if isinstance(event, m.TurnEnded):
            raise ZeroDivisionError
        return step(session, event, *rest)

    async def story(world: World) -> None:
        asked = await world.prompt(await world.new())
        world.link.finish("session/prompt", result={"stopReason": "end_turn"})
        assert not (await asyncio.wait_for(asked, 5)).ok

    monkeypatch.setattr(lifecycle, "step", faulty)
    play(story)


@pytest.mark.parametrize("fault", [BudgetSpent("no answer"), HostRefused("its answer was too long")])
def test_host_that_does_not_answer_a_retirement_is_refused_and_what_it_says_too_late_is_taken(fault: Exception) -> None:
    async def story(world: World) -> None:
        actor = await world.new()

        async def silent(kind: str, budget_s: float, /, **header: Any) -> Any:
            raise fault

        world.link.request = silent
        with pytest.raises(HostRefused):
            await actor.ask(m.SleepAsked)
        assert actor.session.state is State.READY and world.link.cancelled == 1
        world.link.events.ended({"t": "retired", "ended": [[11, 1, "agent", "term"]], "left": []})
        await settle()
        assert actor.session.state is State.HIBERNATED

    play(story)
