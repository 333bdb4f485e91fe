"""The daemon's end of one living host."""

import asyncio
import itertools
import secrets
from collections.abc import Callable, Mapping
from typing import Any

from acpmux.errors import BudgetSpent, HostLost
from acpmux.model.ids import NO_LINE, HostSeq
from acpmux.model.process import Identity
from acpmux.ports import HostEvents
from acpmux.wire import hostframe

CHUNK_BYTES = 1024 * 1024
GONE_BUDGET_S = 2.0  # a host whose harness has ended exits at once; beyond this it is left to its own lock and record


class UnixHostLink(asyncio.Protocol):
    """Implements `ports.HostLink` over a Unix socket.

    Frames are handled in the order they came, in the loop's thread.
    """

    def __init__(
        self,
        events: HostEvents,
        token: str,
        gone: "asyncio.Future[None]",
        end: Callable[[], "asyncio.Future[None]"],
        after: HostSeq = NO_LINE,
    ) -> None:
        """`gone` is done when the host has exited; `end` ends it and all it runs, and is done when nothing is left."""
        self._events = events
        self._token = token
        self._gone = gone
        self._end = end
        self._after = after
        self._reader = hostframe.FrameReader()
        self._transport: asyncio.Transport | None = None
        self._ids = itertools.count(1 + secrets.randbelow(1 << 30))  # an earlier daemon's answers are not ours
        self._asked: dict[int, asyncio.Future[Mapping[str, Any]]] = {}
        self._welcome: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        self._told: Mapping[str, Any] = {}
        self._ended = False
        self._lost = False
        self._over: asyncio.Future[None] | None = None

    # ------------------------------------------------------------ asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._send("hello", token=self._token, versions=[hostframe.VERSION, hostframe.VERSION], after=self._after)

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._reader.feed(data):
                self._take(frame)
        except hostframe.FrameError as error:
            self._drop(str(error))

    def connection_lost(self, exc: Exception | None) -> None:
        self._drop("its link closed")

    def _take(self, frame: hostframe.Frame) -> None:
        header = frame.header
        if frame.kind == "out":
            self._events.line(HostSeq(int(header["n"])), frame.body)
        elif frame.kind == "welcome":
            self._told = header
            if not self._welcome.done():
                self._welcome.set_result(header)
        elif frame.kind == "freed":
            self._events.freed()
        elif frame.kind == "exited":
            self._ended = True
            self._events.exited(header)
        else:
            waiting = self._asked.pop(int(header.get("id", 0)), None)
            over = frame.kind in ("retired", "ended")
            self._ended = self._ended or over
            if waiting is not None and not waiting.done():
                waiting.set_result({"t": frame.kind, **header})
            elif waiting is None and over:
                self._events.ended({"t": frame.kind, **header})

    def _drop(self, reason: str) -> None:
        """The link is over. That the host is lost is told only when nothing of its harness is left."""
        if self._lost:
            return
        self._lost = True
        if self._transport is not None:
            self._transport.close()
        if not self._welcome.done():
            self._fail(self._welcome, reason)
        elif self._ended:
            self._tell(reason)
        else:
            self._over = self._end()
            self._over.add_done_callback(lambda over: over.cancelled() or self._tell(reason))

    def _tell(self, reason: str) -> None:
        for waiting in self._asked.values():
            if not waiting.done():
                self._fail(waiting, reason)
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
            await self._welcome

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
        self._send("in", line, **({} if key is None else {"key": key}))

    def ack(self, host_seq: HostSeq) -> None:
        self._send("ack", n=host_seq)

    def retire_cancel(self) -> None:
        self._send("retire_cancel")

    async def request(self, kind: str, budget_s: float, /, **header: Any) -> Mapping[str, Any]:
        if self._lost:
            await self._until_over()
            raise HostLost("the agent's host is gone")
        number = next(self._ids)
        future: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        self._asked[number] = future
        self._send(kind, id=number, **header)
        try:
            async with asyncio.timeout(budget_s):
                return await future
        except TimeoutError:
            self._asked.pop(number, None)
            raise BudgetSpent(f"the agent's host did not answer {kind} within {budget_s:g} s") from None

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

    def _send(self, kind: str, body: bytes = b"", /, **header: Any) -> None:
        if self._transport is not None and not self._lost:
            self._transport.write(hostframe.encode(kind, body, **header))
