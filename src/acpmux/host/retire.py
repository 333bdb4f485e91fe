"""The retirement (SPEC section 5): look, freeze, look again, and end exactly who was counted, or let everything go on.

Its one rule: doubt always keeps the process. Every way out before the first signal continues what was stopped.
"""

import os
import signal
import time
from typing import NamedTuple, Protocol

from acpmux.census import table
from acpmux.census.identity import Shown
from acpmux.census.listing import list_harness
from acpmux.census.verdict import judge
from acpmux.host.signals import Target, close, kill_child, open_targets, send
from acpmux.model.process import Blocker, Clear, Harness, Held, Identity, Judged, Role, Unknown, Verdict

STOP_S = 0.050  # real agents stop in 0.1 to 0.3 ms; one that is busy starting a child can take 38 ms
FROZEN_S = 0.250  # nothing stays frozen longer
POLL_S = 0.0005
_COUNTED = (Role.HARNESS, Role.SERVER, Role.UNDER_SERVER)


class Refusal(NamedTuple):
    """Why the harness goes on. `retry`: the doubt passes by itself."""

    kind: str
    reason: str
    retry: bool = False
    blockers: tuple[Blocker, ...] = ()


_UNOPENED = Refusal("unknown", "the host has too few file descriptors free to open every process", retry=True)


class Counted(NamedTuple):
    """Everybody who may be ended, opened and signalled for the first time. `freed_bytes` is what they held."""

    targets: list[Target]
    freed_bytes: int


class World(Protocol):
    """What a retirement asks of its host."""

    harness: Harness

    def drain(self) -> None:
        """Takes what the harness has written and the daemon has sent, without waiting for more."""
        ...

    def last_line(self) -> int: ...

    def partial(self) -> bool:
        """True while a line has begun and not ended, or something written was not taken."""
        ...

    def unwritten(self) -> bool: ...
    def used_again(self) -> bool: ...
    def verdict(self, frozen: bool) -> Verdict: ...


def attempt(world: World, after: int, kill: bool) -> Refusal | Counted:
    """Ends in Counted with the first signal sent, or in a Refusal with everything running as before."""
    world.drain()
    refusal = _used(world, after)
    if refusal is not None:
        return refusal
    verdict = world.verdict(False)
    if not isinstance(verdict, Clear):
        return _refusal(verdict)
    freed_bytes = sum(table.memory_bytes(one.row.pid) for one in verdict.judged if one.role in _COUNTED)
    core = [one for one in verdict.judged if one.role is Role.HARNESS]
    frozen = open_targets(one.row for one in core)
    if not all(target.opened for target in frozen):
        close(frozen)
        return _UNOPENED
    began = time.monotonic()
    try:
        counted = _frozen(world, after, frozen, began)
        if isinstance(counted, Refusal):
            return counted
        for target in counted:
            send(target, signal.SIGKILL if kill else signal.SIGTERM)
        return Counted(counted, freed_bytes)
    finally:
        for target in frozen:
            send(target, signal.SIGCONT)
        close(frozen)


def _frozen(world: World, after: int, frozen: list[Target], began: float) -> Refusal | list[Target]:
    for target in frozen:
        send(target, signal.SIGSTOP)
    if not _stopped(frozen, began + STOP_S):
        return Refusal("unstopped", "the agent did not stop within 50 ms", retry=True)
    world.drain()
    refusal = _used(world, after)
    if refusal is not None:
        return refusal
    verdict = world.verdict(True)
    if not isinstance(verdict, Clear):
        return _refusal(verdict)
    stopped = {target.identity for target in frozen}
    if any(one.role is Role.HARNESS and one.row.identity not in stopped for one in verdict.judged):
        return Refusal("unstopped", "a process of the agent's own appeared while it was being stopped", retry=True)
    targets = open_targets(one.row for one in verdict.judged if one.role in _COUNTED)
    if not all(target.opened for target in targets):
        close(targets)
        return _UNOPENED
    if time.monotonic() - began > FROZEN_S:
        close(targets)
        return Refusal("unknown", "the census took too long for a frozen agent", retry=True)
    return targets


def _used(world: World, after: int) -> Refusal | None:
    """Anything that says the session is in use, or that the daemon has not stored all of it."""
    if world.used_again():
        return Refusal("cancelled", "the session is used again")
    if world.last_line() > after or world.partial():
        return Refusal("output", "the agent has said more than was stored", retry=True)
    if world.unwritten():
        return Refusal("unwritten", "the agent has not read all that was sent to it", retry=True)
    return None


def _refusal(verdict: Held | Unknown) -> Refusal:
    if isinstance(verdict, Unknown):
        return Refusal("unknown", verdict.reason, verdict.retry)
    first = verdict.blockers[0]
    reason = f"pid {first.pid} runs under it: {first.command} ({first.why})"
    return Refusal("held", reason, False, verdict.blockers)


def _stopped(targets: list[Target], deadline: float) -> bool:
    """True when every thread of everyone is stopped. Who is gone needs no stop: the census will see."""
    while not all(_is_stopped(target.identity) for target in targets):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def _is_stopped(identity: Identity) -> bool:
    try:
        for thread in os.listdir(f"/proc/{identity.pid}/task"):
            with open(f"/proc/{identity.pid}/task/{thread}/stat", "rb", buffering=0) as file:
                data = file.read(4096)
            if data[data.rindex(b")") + 2 :][:1] not in (b"T", b"t", b"Z", b"X"):
                return False
    except (FileNotFoundError, ProcessLookupError):
        return table.identity_of(identity.pid) != identity
    except OSError:
        return False
    return True


def census(harness: Harness, host_pid: int, frozen: bool, forms: dict[str, Shown]) -> Verdict:
    """One look, judged; a listing that is not whole is Unknown."""
    try:
        listing = list_harness(harness, host_pid, kill_child, frozen)
    except table.CensusError as error:
        return Unknown(error.reason, error.retry)
    return judge(listing, harness, forms)


def known_of(verdict: Verdict) -> tuple[Judged, ...]:
    return () if isinstance(verdict, Unknown) else verdict.judged
