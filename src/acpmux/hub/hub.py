"""Every session of this daemon: made, found, read back at a start, and let go at a shutdown."""

import asyncio
import difflib
import json
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from acpmux.errors import AcpmuxError, ConfigFault, NameTaken, NoSuchSession, UnknownAgent, UsageFault
from acpmux.hub import endings
from acpmux.hub.actor import Actor
from acpmux.hub.bundle import Import, restored
from acpmux.hub.deadlines import Deadlines
from acpmux.hub.effects import Effects, Engine
from acpmux.hub.launch import Surroundings, effective_servers, kept_ready, launch_spec, new_nonce
from acpmux.hub.pool import Kind as PoolKind
from acpmux.hub.pool import Pool
from acpmux.hub.wake import WakePlan
from acpmux.model.config import AgentConfig, Config, Profile
from acpmux.model.ids import HostSeq, Seq, SessionId
from acpmux.model.record import Kind, Record, Stored
from acpmux.model.session import AWAKE, Checkpoint, Live, McpServer, Policy, Prompt, Session, State
from acpmux.ports import Clock, EventLog, HostLauncher, Spawn
from acpmux.rules import messages as m
from acpmux.wire.bundle import Head

WAKES_AT_ONCE = 4  # a harness's start takes one core for a second; more at once only make all of them late
NAME_LIMIT = 64
RECOVER_BUDGET_S = 10.0  # thousands of sessions take a second

_SETTLED = frozenset({State.HIBERNATED, State.CLOSED, State.PARKED})

log = logging.getLogger(__name__)

FindProfile = Callable[[str], Profile]


@dataclass(frozen=True, slots=True)
class NewSession:
    """What a client asks of a new session; None leaves it to the config."""

    agent: str | None
    name: str | None
    cwd: str
    policy: Policy | None
    idle_after_s: float | None
    pinned: bool
    servers: tuple[McpServer, ...]
    prompt: Prompt | None


@dataclass(frozen=True, slots=True)
class Parts:
    """The real parts or doubles a hub is built from."""

    config: Config
    log: EventLog
    clock: Clock
    launcher: HostLauncher
    spawn: Spawn
    around: Surroundings
    profiles: Mapping[str, Profile]
    find_profile: FindProfile
    installed: Callable[[Profile], str | None]


class Hub:
    """All sessions. Raises what its methods name; everything else of a session goes through its actor."""

    def __init__(self, parts: Parts) -> None:
        self.config = parts.config
        self.log = parts.log
        self.clock = parts.clock
        self.started_at_ms = parts.clock.wall_ms()
        self._parts = parts
        self._actors: dict[SessionId, Actor] = {}
        self.deadlines = Deadlines(parts.clock, parts.spawn, self._due)
        self.pool = Pool(parts.launcher, parts.clock, parts.spawn, parts.config.start, parts.around.memory_bytes)
        self._engine = Engine(
            parts.clock,
            parts.log,
            parts.launcher,
            self.pool,
            parts.spawn,
            self.deadlines,
            asyncio.Semaphore(WAKES_AT_ONCE),
            self._plan,
            lambda actor: self._forget(actor),
        )

    # ------------------------------------------------------------ find

    def actors(self) -> list[Actor]:
        return list(self._actors.values())

    def find(self, ref: str) -> Actor:
        """The session with this id or name, or of this host's id. Raises: NoSuchSession, with near names."""
        actor = self._actors.get(SessionId(ref))
        if actor is not None:
            return actor
        named = [a for a in self._actors.values() if a.session.checkpoint.name == ref]
        named = named or [a for a in self._actors.values() if a.session.checkpoint.host_id == ref]
        if named:
            return next((a for a in named if a.session.state is not State.CLOSED), named[0])
        near = difflib.get_close_matches(ref, [a.session.checkpoint.name for a in self._actors.values()], 3)
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        raise NoSuchSession(f"no session is called {ref[:80]!r}.{hint} See: acpmux ls")

    def check_name(self, name: str) -> None:
        """Raises: UsageFault for a name that can't be one, NameTaken when an open session has it."""
        if not name or len(name) > NAME_LIMIT or not all(c.isalnum() or c in "._-" for c in name) or name[0] in "-.":
            raise UsageFault(
                f"{name[:80]!r} can't be a session's name: up to {NAME_LIMIT} letters, digits, '.', '_' and '-', "
                "the first of them a letter, a digit or '_'"
            )
        for actor in self._actors.values():
            if actor.session.checkpoint.name == name:
                raise NameTaken(f"a session is already called {name!r}; see: acpmux ls")

    # ------------------------------------------------------------ agents

    def agents(self) -> list[dict[str, Any]]:
        """Every agent a session can be made with, whether its program is installed, and how to install it."""
        rows: list[dict[str, Any]] = []
        names = dict.fromkeys([*(a.name for a in self.config.agents), *self._parts.profiles])
        for name in names:
            profile, agent = self._agent(name)
            program = self._parts.installed(profile)
            rows.append(
                {
                    "name": name,
                    "title": profile.title,
                    "installed": program is not None,
                    "program": program,
                    "command": list(profile.command),
                    "install": profile.install or None,
                    "homepage": profile.homepage or None,
                    "source": "config" if agent else "built in",
                }
            )
        return rows

    def _agent(self, name: str) -> tuple[Profile, AgentConfig | None]:
        """The profile and the user's settings of an agent, the user's command in the profile. Raises: UnknownAgent."""
        agent = next((a for a in self.config.agents if a.name == name), None)
        try:
            profile = self._parts.find_profile((agent.profile if agent else None) or name)
        except UnknownAgent:
            if agent is None or not agent.command:
                raise
            profile = Profile(name, name, agent.command)
        agent = agent or next((a for a in self.config.agents if a.name == profile.name), None)
        if agent is not None and agent.command:
            profile = replace(profile, command=agent.command)
        return profile, agent

    def _default_agent(self) -> str:
        if self.config.default_agent is not None:
            return self.config.default_agent
        there = [row["name"] for row in self.agents() if row["installed"] and row["name"] != "demo"]
        if len(there) == 1:
            return there[0]
        found = f"these are installed: {', '.join(there)}" if there else "only the built-in one (-a demo) is here"
        raise UsageFault(
            f"which agent? Say it with -a NAME or set default_agent in config.toml; {found}. See: acpmux agents"
        )

    # ------------------------------------------------------------ make

    async def create(self, new: NewSession) -> Actor:
        """A new session with its harness started.

        Raises: HarnessFault when it doesn't start: without a prompt no session is kept, with one it is kept, asleep,
        and the error names it.
        """
        name = new.agent or self._default_agent()
        try:
            profile, agent = self._agent(name)
        except UnknownAgent as error:
            if new.agent is None:
                error.message = f"default_agent in config.toml: {error.message}"
            raise
        if new.name is not None:
            self.check_name(new.name)
        actor = self._add(Session(self._checkpoint(new, profile, agent), self._live(agent)), Seq(0))
        try:
            await self._write_created(actor)
        except AcpmuxError:
            actor.abandon()
            self._forget(actor)
            raise
        try:
            if new.prompt is not None:
                self._parts.spawn("first-prompt", self._quietly(actor, new.prompt))
            await actor.ask(m.WakeAsked)
        except AcpmuxError as error:
            if new.prompt is None and not actor.session.checkpoint.queue:
                await actor.ask(lambda token: m.StopAsked(token, purge=True))
            else:  # also where a prompt came while it started
                name = actor.session.checkpoint.name
                error.session_id = actor.session_id
                error.message += f". The prompt is kept; try again: acpmux wake {name}"
            raise
        return actor

    def begin_import(self, head: Head, name: str | None, cwd: str | None) -> Import:
        """Raises: UnknownAgent; UsageFault, NameTaken; ConfigFault for a folder that is none."""
        profile, agent = self._agent(head.agent)
        if name is not None:
            self.check_name(name)
        else:
            taken = {actor.session.checkpoint.name for actor in self._actors.values()}
            name = head.name if head.name not in taken else self._free_name(head.name[:50])
            self.check_name(name)
        new = NewSession(head.agent, name, folder(cwd or head.cwd), None, None, False, (), None)
        try:
            checkpoint = restored(head, self._checkpoint(new, profile, agent))
        except ValueError as error:
            raise UsageFault(f"line 1: {error}") from None
        return Import(self.log, head, checkpoint)

    async def finish_import(self, coming: Import) -> Actor:
        """Its session is there now, asleep."""
        self.check_name(coming.checkpoint.name)
        await coming.finish(self.clock.wall_ms())
        _, agent = self._agent(coming.checkpoint.agent)
        return self._add(Session(coming.checkpoint, self._live(agent)), coming.seq)

    async def _quietly(self, actor: Actor, prompt: Prompt) -> None:
        """The first prompt's outcome is in the log; a client that wants it asks again by its id."""
        try:
            await actor.ask(lambda token: m.PromptAsked(token, prompt))
        except AcpmuxError:
            return

    def _checkpoint(self, new: NewSession, profile: Profile, agent: AgentConfig | None) -> Checkpoint:
        now_ms = self.clock.wall_ms()
        return Checkpoint(
            session_id=SessionId("s" + secrets.token_hex(6)),
            name=new.name or self._free_name(new.agent or profile.name),
            agent=new.agent or profile.name,
            cwd=new.cwd,
            created_at_ms=now_ms,
            last_active_at_ms=now_ms,
            policy=new.policy or Policy.ASK,
            idle_after_s=new.idle_after_s,
            pinned=new.pinned,
            command=profile.command,
            servers=effective_servers(self.config, agent, new.servers),
            nonce=new_nonce(),
        )

    def _free_name(self, stem: str) -> str:
        taken = {a.session.checkpoint.name for a in self._actors.values()}
        number = 1
        while f"{stem}-{number}" in taken:
            number += 1
        return f"{stem}-{number}"

    async def _write_created(self, actor: Actor) -> None:
        checkpoint = actor.session.checkpoint
        told = {
            "name": checkpoint.name,
            "agent": checkpoint.agent,
            "cwd": checkpoint.cwd,
            "policy": checkpoint.policy.value,
        }
        record = Record(Kind.CREATED, json.dumps(told).encode(), "new", checkpoint.created_at_ms)
        await self.log.commit(actor.session_id, [Stored(Seq(1), record)], checkpoint)
        actor.seq = Seq(1)

    def _live(self, agent: AgentConfig | None) -> Live:
        idle = self.config.idle
        after = idle.after_s
        if agent is not None and agent.pinned:
            after = None
        elif agent is not None and agent.idle_after_s is not None:
            after = agent.idle_after_s
        return Live(idle_after_s=after, attached_hold_s=idle.attached_s, grace_s=idle.grace_s)

    def _add(self, session: Session, seq: Seq) -> Actor:
        actor = Actor(session, seq, self.log, self.clock, lambda actor: Effects(actor, self._engine))
        self._actors[actor.session_id] = actor
        self._parts.spawn(f"actor:{actor.session_id}", actor.run())
        return actor

    def _plan(self, actor: Actor) -> WakePlan:
        checkpoint = actor.session.checkpoint
        profile, agent = self._agent(checkpoint.agent)
        spec = launch_spec(checkpoint, profile, agent, self._parts.around)
        return WakePlan(checkpoint, profile, spec, self.config.start)

    def _due(self, session_id: SessionId, epoch: int) -> None:
        actor = self._actors.get(session_id)
        if actor is not None:
            actor.tell(m.IdleDue(epoch))

    def _forget(self, actor: Actor) -> None:
        self._actors.pop(actor.session_id, None)

    # ------------------------------------------------------------ begin and end

    def keep_ready(self) -> None:
        """Starts the hosts that the config wants kept ready, in the background."""
        self.pool.keep(kind for kind in map(self._pool_kind, self.config.agents) if kind is not None)

    def _pool_kind(self, agent: AgentConfig) -> PoolKind | None:
        if not agent.pool:
            return None
        try:
            profile, _ = self._agent(agent.name)
        except UnknownAgent:
            return None
        if not profile.poolable:
            log.warning(
                "pool of agent=%s left alone: its profile does not say that it can be started ahead", agent.name
            )
            return None
        nobody = Checkpoint(SessionId(""), agent.name, agent.name, "/", 0, 0, command=profile.command)
        return PoolKind(
            agent.name, agent.pool, profile, kept_ready(launch_spec(nobody, profile, agent, self._parts.around))
        )

    async def recover(self, end_others: Callable[[frozenset[str]], Awaitable[None]]) -> None:
        """Reads every stored session and takes over the harnesses that run on; `end_others` ends every other host.

        Nothing is woken. A turn whose harness is gone is written as outcome unknown.
        """
        actors = [await self._read_back(checkpoint, seq) for checkpoint, seq in await self.log.checkpoints()]
        there = [actor for actor in actors if actor.session.state in AWAKE and actor.session.checkpoint.host_id]
        adopted = dict(zip(there, await asyncio.gather(*(self._adopt(actor) for actor in there)), strict=True))
        await end_others(frozenset(str(a.session.checkpoint.host_id) for a, taken in adopted.items() if taken))
        changed: list[asyncio.Future[None]] = []
        for actor in actors:
            if adopted.get(actor):
                changed.append(actor.decided())
            elif actor.session.state not in _SETTLED or actor.session.checkpoint.turn is not None:
                actor.tell(m.Recovered())
                changed.append(actor.decided())
        if changed:
            # no client sees a state that the dead daemon left, but for a disk that takes nothing
            await asyncio.wait(changed, timeout=RECOVER_BUDGET_S)

    async def _read_back(self, checkpoint: Checkpoint, seq: Seq) -> Actor:
        agent = next((a for a in self.config.agents if a.name == checkpoint.agent), None)
        host_seq = await self.log.host_seq(checkpoint.session_id) if checkpoint.state in AWAKE else 0
        return self._add(Session(checkpoint, replace(self._live(agent), host_seq=host_seq)), seq)

    async def _adopt(self, actor: Actor) -> bool:
        host_id, live = actor.session.checkpoint.host_id, actor.session.live
        return host_id is not None and await actor.effects.adopt(host_id, HostSeq(live.host_seq))

    async def shutdown(self, end_agents: bool, all_: bool) -> list[dict[str, Any]]:
        """Leaves every session's harness to the next daemon, or with `end_agents` ends it by row 6.

        Returns what could not be ended.
        """
        await self.pool.close()
        if not end_agents:
            return []
        return await endings.end_agents(tuple(self._actors.values()), self._engine.launcher, all_)


def folder(path: str) -> str:
    """The folder of a new session. Raises: ConfigFault when it is not an absolute path."""
    if not path.startswith("/"):
        raise ConfigFault(f"the session's folder must be an absolute path, not {path[:200]!r}")
    return path
