"""The seams.

What the engine needs of the world, each with a real part in `runtime` or `store` and a double in `tests/kit`.
"""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from acpmux.model.ids import NO_LINE, HostId, HostSeq, PromptId, Seq, SessionId
from acpmux.model.process import CoreRule, Identity, Server
from acpmux.model.record import Kind, Stored
from acpmux.model.session import Checkpoint


class Clock(Protocol):
    """Time, so that a test can own it."""

    def now(self) -> float:
        """Monotonic seconds; never stored."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since the epoch, for records only."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Returns after this much monotonic time."""
        ...


class Spawn(Protocol):
    """Starts a named task that somebody owns and ends."""

    def __call__(self, name: str, work: Coroutine[Any, Any, Any], /) -> asyncio.Task[Any]: ...


class EventLog(Protocol):
    """The log of every session. One writer; a commit is durable when it returns."""

    async def commit(
        self,
        session_id: SessionId,
        rows: Sequence[Stored],
        checkpoint: Checkpoint | None,
        host_seq: HostSeq = NO_LINE,
    ) -> None:
        """Stores rows (their seqs follow the last one without a gap) and, when given, the checkpoint, in one
        transaction, with the number of the last harness's line they came of. A session's first commit brings a
        checkpoint.

        Raises: StoreError; then nothing of it is stored.
        """
        ...

    async def read(self, session_id: SessionId, after: Seq, limit: int) -> list[Stored]:
        """At most `limit` rows with a seq above `after`, in order; fewer where they are large, none only at the end."""
        ...

    async def read_prompt(self, session_id: SessionId, prompt_id: PromptId) -> list[Stored]:
        """Every row tied to this prompt, in order; empty when the id was never seen."""
        ...

    async def read_kinds(self, session_id: SessionId, kinds: Sequence[Kind], last: int) -> list[Stored]:
        """The last `last` rows of these kinds, oldest first."""
        ...

    async def last_seq(self, session_id: SessionId) -> Seq:
        """The highest seq stored, 0 for none."""
        ...

    async def host_seq(self, session_id: SessionId) -> HostSeq:
        """The number of the harness's last line that is stored, from the last commit."""
        ...

    async def checkpoints(self) -> list[tuple[Checkpoint, Seq]]:
        """Every stored session with its last seq, oldest first."""
        ...

    async def purge(self, session_id: SessionId) -> None:
        """Deletes the session and its rows."""
        ...


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """Everything a host needs to start one harness. `env` is the whole environment and is never stored or logged.

    For the launch record: `servers` is what acpmux configured, `configs` whose own configurations name more.
    `retire_signal` is "term" or "kill". `direct` hosts end their harness when the daemon's link closes. One that is
    kept ready has no session and no servers yet: they come with `take`.
    """

    host_id: HostId
    session_id: SessionId
    command: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    anatomy: tuple[CoreRule, ...]
    servers: tuple[Server, ...]
    configs: tuple[str, ...] = ()
    configs_at: str = "start"
    marker_required: bool = True
    retire_signal: str = "term"
    direct: bool = False


class HostEvents(Protocol):
    """Who hears what a host says. Called in the order of the link, never concurrently."""

    def line(self, host_seq: HostSeq, data: bytes) -> None: ...

    def exited(self, header: Mapping[str, Any]) -> None:
        """The harness exited on its own; the header of the `exited` frame."""
        ...

    def ended(self, header: Mapping[str, Any]) -> None:
        """What an earlier daemon asked for has happened: the header of a `retired` or `ended` frame."""
        ...

    def freed(self) -> None:
        """Everybody whom the last refusal named has ended."""
        ...

    def lost(self, reason: str) -> None:
        """The host crashed or was out of reach. Nothing of its harness is left, and nothing more will come."""
        ...


class HostLink(Protocol):
    """The daemon's end of one living host. Headers are those of `wire/hostframe.py`.

    Every request raises HostLost when the host goes before it answers.
    """

    @property
    def leader(self) -> Identity: ...

    @property
    def host_pid(self) -> int: ...

    @property
    def welcome(self) -> Mapping[str, Any]:
        """The header of the host's `welcome`."""
        ...

    @property
    def retiring(self) -> bool:
        """True where the host was past the first signal of a retirement when it was linked."""
        ...

    def send(self, line: bytes, key: str | None = None) -> None:
        """Queues one line for the harness, without its newline. A line with a key is handed over once at most."""
        ...

    def ack(self, host_seq: HostSeq) -> None: ...

    def retire_cancel(self) -> None: ...

    async def request(self, kind: str, budget_s: float, /, **header: Any) -> Mapping[str, Any]:
        """Sends `core`, `take`, `settle`, `retire`, `end` or `census`; returns the answer's header, its kind under `t`.

        Raises: HostLost; BudgetSpent when nothing came in time.
        """
        ...

    async def give_up(self, reason: str) -> None:
        """The host does not answer: ends it and all it runs by proof of identity, and tells `HostEvents.lost`."""
        ...

    async def close(self) -> None:
        """Says goodbye; the host exits when its harness has ended.

        Waits until it is gone (2 s at most), then reaps it.
        """
        ...


class HostLauncher(Protocol):
    async def start(self, spec: LaunchSpec, events: HostEvents) -> HostLink:
        """Starts a host: it reads the launch's MCP servers, then spawns the harness.

        Raises: LaunchFailed with a clear text (missing program, bad folder, a spawn that failed).
        """
        ...

    async def adopt(self, host_id: HostId, after: HostSeq, events: HostEvents) -> HostLink | None:
        """Links to a host of an earlier daemon: its output behind `after` follows, then how its harness ended.

        None when there is none that could be adopted; then nothing of it is left.
        """
        ...

    async def left_running(self, marks: Sequence[str]) -> list[Mapping[str, Any]]:
        """Every process with one of these `NAME=value` in its environment, as a row of `_acpmux/census`."""
        ...

    async def end_left(self, marks: Sequence[str]) -> list[Any]:
        """Ends all of those: TERM, 300 ms, KILL. Returns (pid, start, command, how) of each."""
        ...
