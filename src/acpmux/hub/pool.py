"""Hosts kept ready: started and initialised ahead of the sessions that take them (`pool = N` of an agent).

Bounded: as many of an agent as it says, all of them together an eighth of the machine's memory, started one at a time.
One that nobody takes for half an hour ends by the census as any idle harness does; its agent's next use starts another.
"""

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from acpmux.errors import AcpmuxError
from acpmux.hub.harness import CENSUS_BUDGET_S, Harness
from acpmux.hub.launch import can_stand_in, kept_ready
from acpmux.hub.wake import make_ready, take
from acpmux.model.config import Profile, StartConfig
from acpmux.ports import Clock, HostLauncher, LaunchSpec, Spawn
from acpmux.rules import messages as m

UNUSED_S = 1800.0  # who has not opened a session in half an hour can wait a second for the next
REFILL_S = 3.0  # the wake that took one has the machine to itself first
MEMORY_SHARE = 8
GRACE_S = 5.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Kind:
    """What is kept ready for one agent: `spec` starts a host that can stand in for any session of it."""

    agent: str
    size: int
    profile: Profile
    spec: LaunchSpec


@dataclass(eq=False, slots=True)
class _Ready:
    kind: Kind
    harness: Harness
    rss_bytes: int
    watchers: tuple["asyncio.Task[Any]", ...] = ()


class Pool:
    """The hosts that no session has taken yet. With no kinds it does nothing."""

    def __init__(
        self, launcher: HostLauncher, clock: Clock, spawn: Spawn, budgets: StartConfig, memory_bytes: int
    ) -> None:
        self._launcher = launcher
        self._clock = clock
        self._spawn = spawn
        self._budgets = budgets
        self._limit_bytes = memory_bytes // MEMORY_SHARE
        self._kinds: tuple[Kind, ...] = ()
        self._ready: list[_Ready] = []
        self._starting: dict[asyncio.Task[Any], Kind] = {}
        self._one_at_a_time = asyncio.Lock()

    def keep(self, kinds: Iterable[Kind]) -> None:
        """From now on these are kept ready."""
        self._kinds = tuple(kinds)
        for kind in self._kinds:
            self._fill(kind)

    async def take(self, spec: LaunchSpec) -> Harness | None:
        """A harness that is what `spec` would start, past its `initialize`; None when there is none."""
        kind = next((kind for kind in self._kinds if can_stand_in(kind.spec, spec)), None)
        if kind is None:
            return None
        self._spawn(f"pool:{kind.agent}", self._refill(kind))
        while (one := next((one for one in self._ready if one.kind is kind), None)) is not None:
            self._let_go(one)
            try:
                await take(one.harness, spec)
                return one.harness
            except AcpmuxError as error:
                log.warning("kept ready and not taken agent=%s error=%s", kind.agent, error.message)
        return None

    async def close(self) -> None:
        """Ends them all, and waits until nothing of them is left."""
        self._kinds = ()
        starting = set(self._starting)
        for task in starting:
            task.cancel()
        if starting:
            await asyncio.wait(starting)
        ready, self._ready = self._ready, []
        for watcher in (watcher for one in ready for watcher in one.watchers):
            watcher.cancel()
        await asyncio.gather(*(one.harness.abandon() for one in ready))

    def rows(self) -> list[dict[str, Any]]:
        """What `daemon status` shows of them."""
        return [
            {
                "agent": one.kind.agent,
                "pid": one.harness.link.leader.pid,
                "hostPid": one.harness.link.host_pid,
                "rssBytes": one.rss_bytes,
            }
            for one in self._ready
        ]

    # ------------------------------------------------------------ filling

    async def _refill(self, kind: Kind) -> None:
        await self._clock.sleep(REFILL_S)
        self._fill(kind)

    def _fill(self, kind: Kind) -> None:
        there = sum(one.kind is kind for one in self._ready) + sum(one is kind for one in self._starting.values())
        for _ in range(kind.size - there if kind in self._kinds else 0):
            task = self._spawn(f"pool:{kind.agent}", self._start(kind))
            self._starting[task] = kind
            task.add_done_callback(lambda task: self._starting.pop(task, None))

    async def _start(self, kind: Kind) -> None:
        try:
            async with self._one_at_a_time:
                if not self._has_room(kind):
                    log.info("no more kept ready agent=%s reason=memory", kind.agent)
                    return
                harness = Harness()
                harness.muted = harness.pooled = True
                await make_ready(harness, kept_ready(kind.spec), kind.profile, self._budgets, self._launcher)
                one = _Ready(kind, harness, await self._rss_bytes(harness))
        except AcpmuxError as error:
            log.warning("not kept ready agent=%s code=%s error=%s", kind.agent, error.code, error.message)
            return
        one.watchers = (
            self._spawn(f"pool:{kind.agent}", self._gone(one)),
            self._spawn(f"pool:{kind.agent}", self._unused(one)),
        )
        self._ready.append(one)

    def _has_room(self, kind: Kind) -> bool:
        wanted = max((one.rss_bytes for one in self._ready if one.kind is kind), default=0)
        return sum(one.rss_bytes for one in self._ready) + wanted <= self._limit_bytes

    async def _rss_bytes(self, harness: Harness) -> int:
        try:
            header = await harness.link.request("census", CENSUS_BUDGET_S)
        except BaseException:
            await asyncio.shield(harness.abandon())
            raise
        return sum(int(row.get("rssBytes") or 0) for row in header.get("processes") or ())

    # ------------------------------------------------------------ their ends

    def _let_go(self, one: _Ready) -> None:
        if one in self._ready:  # else it is being retired
            self._ready.remove(one)
        for watcher in one.watchers:
            if watcher is not asyncio.current_task():
                watcher.cancel()

    async def _gone(self, one: _Ready) -> None:
        await one.harness.over.wait()
        self._let_go(one)
        log.warning("kept ready and gone agent=%s", one.kind.agent)
        await one.harness.abandon()

    async def _unused(self, one: _Ready) -> None:
        """Ends it by the census; what runs under it and is not known keeps it ready for another half an hour."""
        while True:
            await self._clock.sleep(UNUSED_S)
            self._ready.remove(one)
            event = await one.harness.retire(one.harness.host_seq, GRACE_S)
            if not isinstance(event, m.RetireRefused):
                break
            self._ready.append(one)
        one.watchers[0].cancel()
