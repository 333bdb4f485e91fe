"""A host without a process: the test speaks for the harness, and decides how a retirement ends."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from acpmux.errors import HostLost
from acpmux.model.ids import HostId, HostSeq
from acpmux.model.process import Identity
from acpmux.ports import HostEvents, LaunchSpec

Reply = Callable[[str, dict[str, Any]], Any]


class FakeLink:
    """Implements `ports.HostLink`. `replies` answers the harness's requests; what it does not know is answered with {}."""

    def __init__(self, spec: LaunchSpec, events: HostEvents, replies: Reply) -> None:
        self.spec = spec
        self.events = events
        self.sent: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.acked = 0
        self.cancelled = 0
        self.closed = False
        self.held: asyncio.Future[Mapping[str, Any]] | None = None
        self.taken: list[Mapping[str, Any]] = []
        self.retires: list[Mapping[str, Any]] = []
        self.answer: Callable[[], Mapping[str, Any]] = lambda: {
            "t": "retired",
            "ended": [[11, 1, "agent", "term"]],
            "left": [],
        }
        self._replies = replies
        self._seq = 0

    leader = Identity(11, 1)
    host_pid = 10

    def say(self, told: dict[str, Any]) -> None:
        self._seq += 1
        self.events.line(HostSeq(self._seq), json.dumps({"jsonrpc": "2.0", **told}).encode())

    def update(self, **update: Any) -> None:
        self.say({"method": "session/update", "params": {"sessionId": "agent-1", "update": update}})

    retiring = False
    welcome: Mapping[str, Any] = {}

    def send(self, line: bytes, key: str | None = None) -> None:
        told = json.loads(line)
        self.sent.append(told)
        self.keys.append(key)
        if "id" in told and "method" in told:
            reply = self._replies(told["method"], told.get("params") or {})
            if reply is not None:
                asyncio.get_running_loop().call_soon(self.say, {"id": told["id"], **reply})

    def finish(self, method: str, **answer: Any) -> None:
        """Answers the last request of this method, which `replies` left open."""
        asked = next(told for told in reversed(self.sent) if told.get("method") == method)
        self.say({"id": asked["id"], **answer})

    def methods(self) -> list[str]:
        return [told["method"] for told in self.sent if "method" in told]

    def ack(self, host_seq: HostSeq) -> None:
        self.acked = host_seq

    def retire_cancel(self) -> None:
        self.cancelled += 1

    async def request(self, kind: str, budget_s: float, /, **header: Any) -> Mapping[str, Any]:
        if self.closed:
            raise HostLost("closed")
        if kind == "core":
            return {"t": "core_marked", "core": [[11, 1]]}
        if kind == "take":
            self.taken.append(header)
        if kind == "retire":
            self.retires.append(header)
            if self.held is not None:
                return await self.held
            return self.answer()
        return {"t": {"end": "ended"}.get(kind, kind), "ended": [], "left": []}

    async def give_up(self, reason: str) -> None:
        self.closed = True
        self.events.lost(reason)

    async def close(self) -> None:
        self.closed = True


class FakeLauncher:
    """Implements `ports.HostLauncher`. `fail` is raised by the next start."""

    def __init__(self, replies: Reply | None = None) -> None:
        self.links: list[FakeLink] = []
        self.replies = replies or usual
        self.fail: list[Exception] = []
        self.adoptable: FakeLink | None = None
        self.left: list[Mapping[str, Any]] = []

    async def start(self, spec: LaunchSpec, events: HostEvents) -> FakeLink:
        if self.fail:
            raise self.fail.pop(0)
        self.links.append(FakeLink(spec, events, self.replies))
        return self.links[-1]

    async def adopt(self, host_id: HostId, after: HostSeq, events: HostEvents) -> FakeLink | None:
        if self.adoptable is None:
            return None
        self.adoptable.events = events
        return self.adoptable

    async def left_running(self, marks: Sequence[str]) -> list[Mapping[str, Any]]:
        return self.left

    async def end_left(self, marks: Sequence[str]) -> list[Any]:
        ended = [[row["pid"], 1, "left", "term"] for row in self.left]
        self.left = []
        return ended


def usual(method: str, params: dict[str, Any]) -> Any:
    """A well-behaved agent; prompts stay open until the test finishes them."""
    if method == "initialize":
        offered = {"loadSession": True, "sessionCapabilities": {"resume": {}}}
        return {"result": {"protocolVersion": 1, "agentCapabilities": offered}}
    if method == "session/new":
        return {"result": {"sessionId": "agent-1", "modes": {"currentModeId": "default", "availableModes": []}}}
    if method == "session/prompt":
        return None
    return {"result": {}}
