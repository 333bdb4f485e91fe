"""The daemon's end of one living host."""

import asyncio
import itertools
import logging
import secrets
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from acpmux.errors import BudgetSpent, HostLost, HostRefused
from acpmux.model.ids import NO_LINE, HostSeq
from acpmux.model.process import Identity
from acpmux.ports import HostEvents
from acpmux.wire import hostframe

CLOSED = "its link closed"
BROKEN_TIMES = 5  # in BROKEN_WITHIN_S seconds: a link that breaks each time it is made is tried less often
BROKEN_WITHIN_S = 10.0
_OUTCOMES = {"retire": "retired", "end": "ended"}
GONE_BUDGET_S = 2.0  # a host whose harness has ended exits at once; beyond this it is left to its own lock and record

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Asked:
    kind: str
    header: dict[str, Any]
    answer: "asyncio.Future[Mapping[str, Any]]"


class UnixHostLink(asyncio.Protocol):
    """Implements `ports.HostLink` over a Unix socket.

    Frames are handled in the order they came, in the loop's thread. A link that breaks while the host lives is made
    again: each line to the harness is numbered and kept until the host has it, each of its lines until it is stored.
    A host that lives and can't be reached is never ended for that: what runs under it may be somebody's work.
    """

    def __init__(
        self,
        events: HostEvents,
        token: str,
        gone: "asyncio.Future[None]",
        end: Callable[[], "asyncio.Future[None]"],
        again: Callable[["UnixHostLink"], "asyncio.Future[bool]"] | None = None,
        after: HostSeq = NO_LINE,
        told: Mapping[str, Any] | None = None,
    ) -> None:
        """`gone` is done when the host has exited; `end` ends it and all it runs, and is done when nothing is left.

        `again` tries to connect this same link once more; false when the host has gone or turns it away. `told` is
        what its record says before its welcome does: pid, start, host_pid.
        """
        self._events = events
        self._token = token
        self._gone = gone
        self._end = end
        self._again = again
        self._stored = self._line = after
        self._reader = hostframe.FrameReader()
        self._transport: asyncio.Transport | None = None
        self._ids = itertools.count(1 + secrets.randbelow(1 << 30))  # an earlier daemon's answers are not ours
        self._asked: dict[int, _Asked] = {}
        self._sent = 0
        self._unconfirmed: deque[tuple[int, bytes, str | None]] = deque()
        self._welcome: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        self._told: Mapping[str, Any] = told or {}
        self._numbered = False
        self._broken_at: list[float] = []
        self._ended = False
        self._lost = False
        self._over: asyncio.Future[None] | None = None

    # ------------------------------------------------------------ asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport, self._reader = transport, hostframe.FrameReader()
        self._write("hello", token=self._token, versions=[hostframe.VERSION, hostframe.VERSION], after=self._stored)

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._reader.feed(data):
                self._take(frame)
        except hostframe.FrameError as error:
            log.warning("host link broken error=%s", error)
            if self._transport is not None:
                self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        linked, self._transport = self._linked, None
        if not linked:
            if not self._welcome.done():  # whoever connects it hears of it
                self._fail(self._welcome, CLOSED)
        elif self._ended or self._again is None:
            self._drop(CLOSED)
        else:
            self._broken_at.append(asyncio.get_running_loop().time())
            self._welcome = asyncio.get_running_loop().create_future()
            self.reconnect()

    # ------------------------------------------------------------ made again

    def reconnect(self) -> "asyncio.Future[bool]":
        """Links again in the background, until the host answers; when it has gone, that is told."""
        assert self._again is not None
        trying = self._again(self)
        trying.add_done_callback(lambda made: made.cancelled() or made.result() or self._drop(CLOSED))
        return trying

    def connecting(self) -> None:
        """One try begins."""
        if self._transport is not None:
            self._transport.set_protocol(asyncio.Protocol())  # that it ends is no news of the connection that comes
            self._transport.abort()
            self._transport = None
        self._welcome = asyncio.get_running_loop().create_future()

    @property
    def breaks_each_time(self) -> bool:
        """True for a link that broke again and again in the last moments."""
        recent = asyncio.get_running_loop().time() - BROKEN_WITHIN_S
        self._broken_at = [at for at in self._broken_at if at > recent]
        return len(self._broken_at) > BROKEN_TIMES

    # ------------------------------------------------------------ what it says

    def _take(self, frame: hostframe.Frame) -> None:
        header = frame.header
        match frame.kind:
            case "out":
                if int(header["n"]) > self._line:
                    self._line = HostSeq(int(header["n"]))
                    self._hear(frame.body)
            case "got":
                self._confirm(int(header["n"]))
            case "welcome":
                self._welcomed(header)
            case "freed":
                self._events.freed()
            case "exited":
                self._ended = True
                self._events.exited(header)
            case _:
                self._answered(frame.kind, header)

    def _hear(self, line: bytes) -> None:
        """A fault of ours costs one line, never the link: it would be sent again and meet the same."""
        try:
            self._events.line(self._line, line)
        except Exception:
            log.exception("line failed n=%d bytes=%d", self._line, len(line))

    def _answered(self, kind: str, header: Mapping[str, Any]) -> None:
        over = kind in ("retired", "ended")
        self._ended = self._ended or over
        number = int(header.get("id", 0))
        if number == 0 and over:  # told again on a link that was made again
            number = next((n for n, asked in self._asked.items() if _OUTCOMES.get(asked.kind) == kind), 0)
        asked = self._asked.pop(number, None)
        if asked is not None and not asked.answer.done():
            asked.answer.set_result({"t": kind, **header})
        elif asked is None and over:
            self._events.ended({"t": kind, **header})

    def _welcomed(self, header: Mapping[str, Any]) -> None:
        """Linked. Made again, what the host has not got is sent again, and what it was asked is asked again."""
        first, self._told, self._numbered = not self._numbered, header, True
        taken = int(header.get("taken", 0))
        if first:  # lines that waited for it are numbered from where an earlier daemon's ended
            self._sent += taken
            self._unconfirmed = deque((number + taken, line, key) for number, line, key in self._unconfirmed)
        else:
            self._confirm(taken)
            log.info("host link made again state=%s", header.get("state"))
        for number, line, key in self._unconfirmed:
            self._write_line(number, line, key)
        for number, asked in tuple(self._asked.items()):
            self._ask_again(number, asked)
        if not self._welcome.done():
            self._welcome.set_result(header)

    def _ask_again(self, number: int, asked: _Asked) -> None:
        """A retirement that met no link was refused, and its answer lost; one past its first signal tells its end."""
        if asked.kind != "retire":
            self._write(asked.kind, id=number, **asked.header)
        elif self._told.get("state") not in ("retiring", "retired"):
            refused: dict[str, Any] = {"kind": "cancelled", "reason": "its link broke", "retry": True, "blockers": []}
            self._answered("refused", {"id": number, **refused})

    def _confirm(self, number: int) -> None:
        while self._unconfirmed and self._unconfirmed[0][0] <= number:
            self._unconfirmed.popleft()

    def _drop(self, reason: str) -> None:
        """The link is over. That the host is lost is told only when nothing of its harness is left."""
        if self._lost:
            return
        self._lost = True
        if self._transport is not None:
            self._transport.close()
        if not self._welcome.done():
            self._fail(self._welcome, reason)
        if not self._told:
            return
        if self._ended:
            self._tell(reason)
        else:
            self._over = self._end()
            self._over.add_done_callback(lambda over: over.cancelled() or self._tell(reason))

    def _tell(self, reason: str) -> None:
        for asked in self._asked.values():
            if not asked.answer.done():
                self._fail(asked.answer, reason)
        self._asked.clear()
        if not self._ended:
            self._events.lost(reason)

    @staticmethod
    def _fail(waiting: "asyncio.Future[Mapping[str, Any]]", reason: str) -> None:
        waiting.set_exception(HostLost(f"the agent's host is gone: {reason}"))
        waiting.exception()  # whoever awaits it still gets it; nobody may

    # ------------------------------------------------------------ ports.HostLink

    async def welcomed(self, budget_s: float) -> None:
        """Raises: HostLost, TimeoutError."""
        async with asyncio.timeout(budget_s):
            await asyncio.shield(self._welcome)

    @property
    def leader(self) -> Identity:
        return Identity(int(self._told["pid"]), int(self._told["start"]))

    @property
    def welcome(self) -> Mapping[str, Any]:
        return self._told

    @property
    def retiring(self) -> bool:
        return self._told.get("state") == "retiring"

    @property
    def host_pid(self) -> int:
        return int(self._told["host_pid"])

    def send(self, line: bytes, key: str | None = None) -> None:
        self._sent += 1
        self._unconfirmed.append((self._sent, line, key))
        if self._linked:
            self._write_line(self._sent, line, key)

    def ack(self, host_seq: HostSeq) -> None:
        self._stored = host_seq
        self._send("ack", n=host_seq)

    def retire_cancel(self) -> None:
        self._send("retire_cancel")

    async def request(self, kind: str, budget_s: float, /, **header: Any) -> Mapping[str, Any]:
        if self._lost:
            await self._until_over()
            raise HostLost("the agent's host is gone")
        number = next(self._ids)
        future: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        self._asked[number] = _Asked(kind, header, future)
        self._send(kind, id=number, **header)
        try:
            async with asyncio.timeout(budget_s):
                answer = await future
        except TimeoutError:
            self._asked.pop(number, None)
            raise BudgetSpent(f"the agent's host did not answer {kind} within {budget_s:g} s") from None
        if answer["t"] == "failed":
            raise HostRefused(f"the agent's host could not answer {kind}: {answer.get('reason')}")
        return answer

    async def give_up(self, reason: str) -> None:
        self._drop(reason)
        await self._until_over()

    async def _until_over(self) -> None:
        if self._over is not None:
            await asyncio.wait({self._over})

    async def close(self) -> None:
        self._send("bye")
        self._ended = True
        try:
            async with asyncio.timeout(GONE_BUDGET_S):
                await asyncio.shield(self._gone)
        except TimeoutError:
            pass
        self._drop("closed")

    @property
    def _linked(self) -> bool:
        return not self._lost and self._welcome.done() and self._welcome.exception() is None

    def _send(self, kind: str, /, **header: Any) -> None:
        if self._linked:
            self._write(kind, **header)

    def _write_line(self, number: int, line: bytes, key: str | None) -> None:
        self._write("in", line, n=number, **({} if key is None else {"key": key}))

    def _write(self, kind: str, body: bytes = b"", /, **header: Any) -> None:
        if self._transport is not None:
            self._transport.write(hostframe.encode(kind, body, **header))
