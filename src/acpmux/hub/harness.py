"""One incarnation of a harness: what it says becomes events, what the session asks becomes lines.

Its one rule: every line of the harness becomes exactly one event after the wake, so that a retirement can name
the last line that was stored. Read next: `hub/wake.py`, how it is brought up.
"""

import asyncio
import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from acpmux.errors import AcpmuxError, HostLost, LaunchFailed
from acpmux.hub.headers import LaunchTold, blockers_of, ended_of, host_ended_of, launch_of, retired_of
from acpmux.hub.said import NoiseGate, said_notification, said_request, turn_over
from acpmux.model.ids import AgentSessionId, HostId, HostSeq, PromptId, Seq
from acpmux.model.session import Checkpoint
from acpmux.ports import HostLink
from acpmux.rules import messages as m
from acpmux.untyped import as_list, as_object, parse_json
from acpmux.wire import acp, jsonrpc
from acpmux.wire.hostframe import MAX_BODY_BYTES

# what a harness says before its session is open and that may be true of it
EARLY_KINDS = frozenset(
    {
        "available_commands_update",
        "session_info_update",
        "usage_update",
        "current_mode_update",
        "config_option_update",
    }
)
OWN_IDS = 1 << 48  # ids of requests that are no prompts; below are the seqs of turns, and all are exact in JavaScript
RETIRE_BUDGET_S = 30.0  # grace (5 s) and what the host's own steps take; a host that is silent for longer is lost
END_BUDGET_S = 15.0  # 300 ms, KILL and the reaping; also waits out a retirement
ACK_LINES, ACK_BYTES = 100, 1024 * 1024  # swallowed since the last ack; a host waits at twenty times the lines
EARLY_BYTES = 8 * 1024 * 1024  # kept of what is said before the session is open: beyond it the harness waits
CENSUS_BUDGET_S = 5.0  # the host's own limit is 3 s over all tries


@dataclass(frozen=True, slots=True)
class _Turn:
    prompt_id: PromptId


@dataclass(frozen=True, slots=True)
class _Forwarded:
    token: int
    setting: tuple[tuple[str, object], ...] | None


_Pending = _Turn | _Forwarded | asyncio.Future[jsonrpc.Response]


class Harness:
    """The daemon's half of one running harness; whom it `belongs_to` gets its events in the order of its lines.

    `early` is what it said before its session was open and may still hold then, but for what it said while `muted`:
    nothing of it has to be stored, for a start that fails has nothing to keep, so its host may drop it. `ready` from
    the answer to `initialize` on; `pooled` when that came before there was a session. `over` is set when it has gone.
    """

    def __init__(self) -> None:
        self._post: Callable[[m.Event], None] | None = None
        self._held: list[m.Event] | None = None
        self._link: HostLink | None = None
        self._pending: dict[bytes, _Pending] = {}
        self._last_id = OWN_IDS + (secrets.randbelow(1 << 20) << 24)
        self._awake = False
        self._gone: AcpmuxError | None = None
        self._deaf = False
        self._noise = NoiseGate()
        self._early_bytes = 0
        self._unacked_bytes = 0
        self._acked = HostSeq(0)
        self.early: list[m.Said] = []
        self.muted = False
        self.ready = False
        self.pooled = False
        self.over = asyncio.Event()
        self.host_id = HostId("")
        self.capabilities = acp.Capabilities(0, load=False, resume=False)
        self.launch = LaunchTold()
        self.unlisted = False
        self.host_seq = HostSeq(0)
        self.agent_session_id = AgentSessionId("")
        self.mode_option: str | None = None

    # ------------------------------------------------------------ the link

    @property
    def link(self) -> HostLink:
        if self._link is None:
            raise LaunchFailed("the agent has not been started")
        return self._link

    @property
    def linked_to_host(self) -> bool:
        return self._link is not None

    def linked(self, link: HostLink) -> None:
        self._link = link
        self._swallow(ACK_BYTES)

    def belongs_to(self, post: Callable[[m.Event], None]) -> None:
        """`post` takes every event from now on."""
        self._post = post

    def opened(self, woke: m.Woke, lasting: frozenset[str]) -> None:
        """The wake is over: Woke is posted, then what was said meanwhile and still holds, then all that follows."""
        early, self.early = self.early, []
        self._awake = True
        self._put(woke)
        for said in early:
            if not isinstance(said, m.Update) or said.kind in lasting:
                self._put(m.HarnessSaid(self.host_seq, said))

    # ------------------------------------------------------------ adoption

    def resumed(self, checkpoint: Checkpoint, host_seq: HostSeq, turn_seq: Seq | None) -> None:
        """This is a harness that an earlier daemon brought up; what it says is kept back until `adopted`."""
        self._awake, self._held = True, []
        self.host_seq = host_seq
        self.agent_session_id = checkpoint.agent_session_id or AgentSessionId("")
        listed = as_list(parse_json(checkpoint.config_options or b"null"))
        modes = (item.get("id") for item in map(as_object, listed) if item.get("category") == "mode")
        self.mode_option = next((option for option in modes if isinstance(option, str)), None)
        if checkpoint.turn is not None and turn_seq is not None:
            self._pending[str(turn_seq).encode()] = _Turn(checkpoint.turn.prompt.prompt_id)

    def adopted(self, link: HostLink) -> None:
        """Adopted is posted, then all that the harness has said since the last stored line."""
        self._link = link
        held, self._held = self._held or [], None
        self._put(m.Adopted(link.leader.pid, link.host_pid, link.retiring, launch_of(link.welcome).problems))
        for event in held:
            self._put(event)

    def _put(self, event: m.Event) -> None:
        if self._held is not None:
            self._held.append(event)
        elif self._post is not None:
            self._post(event)

    # ------------------------------------------------------------ HostEvents

    def line(self, host_seq: HostSeq, data: bytes) -> None:
        self.host_seq = host_seq
        if not self._deaf:
            self._heard(data)
        if not self._awake and self._early_bytes < EARLY_BYTES:
            self._swallow(len(data))

    def _heard(self, data: bytes) -> None:
        try:
            message = jsonrpc.decode(_utf8(data))
        except jsonrpc.NotAMessage as error:
            self._noisy(str(error), data)
            return
        match message:
            case jsonrpc.Response():
                self._answered(message)
            case jsonrpc.Request():
                self._say(said_request(message), len(data))
            case jsonrpc.Notification() if not self.muted:
                self._say(said_notification(message), len(data))
            case _:
                pass

    def _swallow(self, size_bytes: int) -> None:
        """Nothing of this line is stored: its host may drop it."""
        self._unacked_bytes += size_bytes
        many = self._unacked_bytes >= ACK_BYTES or self.host_seq - self._acked >= ACK_LINES
        if many and self._link is not None and self._gone is None:
            self._acked, self._unacked_bytes = self.host_seq, 0
            self._link.ack(self._acked)

    def exited(self, header: Mapping[str, Any]) -> None:
        event = m.HarnessExited(
            header.get("code"),
            header.get("signal"),
            str(header.get("stderr") or "")[-4096:],
            ended_of(header.get("ended")),
            ended_of(header.get("left")),
        )
        self._down(event, LaunchFailed(_exit_text(event)))

    def ended(self, header: Mapping[str, Any]) -> None:
        self._down(retired_of(header) if header["t"] == "retired" else host_ended_of(header), LaunchFailed("it ended"))

    def freed(self) -> None:
        if self._awake:
            self._put(m.BlockersGone())

    def lost(self, reason: str) -> None:
        self._down(
            m.HarnessExited(None, None, reason, lost=True),
            LaunchFailed(f"the agent's host was lost: {reason}"),
        )

    def _down(self, event: m.HarnessExited | m.Retired | m.HostEnded, error: AcpmuxError) -> None:
        if self._gone is not None:
            return
        self._gone = error
        for pending in self._pending.values():
            if isinstance(pending, asyncio.Future) and not pending.done():
                pending.set_exception(error)
        self._pending.clear()
        self.over.set()
        if self._awake:
            self._put(event)

    # ------------------------------------------------------------ what it says

    def _say(self, said: m.Said, size_bytes: int = 0) -> None:
        if self._awake:
            self._put(m.HarnessSaid(self.host_seq, said))
        elif not self.muted and (said.kind in EARLY_KINDS if isinstance(said, m.Update) else said != m.Skipped()):
            self.early.append(said)
            self._early_bytes += size_bytes

    def _noisy(self, reason: str, line: bytes) -> None:
        self._say(self._noise.pass_on(asyncio.get_running_loop().time(), reason, line), 1)

    def _answered(self, response: jsonrpc.Response) -> None:
        pending = self._pending.pop(response.id, None)
        match pending:
            case None if response.id.isdigit() and int(response.id) >= OWN_IDS:
                self._say(m.Skipped())  # to an earlier daemon's request, whose client has gone with it
            case None:
                self._noisy("an answer to a question nobody asked", response.id)
            case _Turn(prompt_id):
                self._put(turn_over(self.host_seq, prompt_id, response))
            case _Forwarded(token, setting):
                self._put(m.RequestAnswered(self.host_seq, token, response.ok, response.payload, setting))
            case _:
                if not pending.done():
                    pending.set_result(response)

    # ------------------------------------------------------------ what it is told

    def _write(self, method: str, params: bytes, pending: _Pending, turn_seq: Seq | None = None) -> None:
        """A prompt's id is the seq with which its turn started, so that a later daemon knows the answer."""
        if self._gone is not None:
            raise self._gone
        self._last_id += 1
        number = self._last_id if turn_seq is None else turn_seq
        self._pending[str(number).encode()] = pending
        key = None if turn_seq is None else f"prompt:{turn_seq}"
        line = jsonrpc.encode_request(number, method, params)
        if len(line) > MAX_BODY_BYTES:
            error = {"code": -32600, "message": f"a message of {len(line)} bytes is over the limit: nothing was sent"}
            self._answered(jsonrpc.Response(str(number).encode(), False, json.dumps(error).encode()))
            return
        self.link.send(line, key)

    async def call(self, method: str, params: bytes) -> jsonrpc.Response:
        """One request and its answer, for the wake. Raises: LaunchFailed when the harness goes meanwhile."""
        future: asyncio.Future[jsonrpc.Response] = asyncio.get_running_loop().create_future()
        self._write(method, params, future)
        return await future

    def send_prompt(self, prompt_id: PromptId, blocks: bytes, turn_seq: Seq) -> None:
        self._write("session/prompt", acp.prompt_params(self.agent_session_id, blocks), _Turn(prompt_id), turn_seq)

    def send_cancel(self) -> None:
        params = json.dumps({"sessionId": self.agent_session_id}).encode()
        self.link.send(jsonrpc.encode_notification("session/cancel", params))

    def send_request(self, token: int, method: str, params: bytes) -> None:
        setting = self._setting(method, params)
        self._write(method, acp.replace_session_id(params, self.agent_session_id), _Forwarded(token, setting))

    def send_notification(self, method: str, params: bytes) -> None:
        line = jsonrpc.encode_notification(method, acp.replace_session_id(params, self.agent_session_id))
        if len(line) <= MAX_BODY_BYTES:  # a notification has nobody who could be told
            self.link.send(line)

    def answer(self, effect: m.AnswerHarness) -> None:
        if self._gone is not None:
            return
        if effect.result is not None:
            line = jsonrpc.encode_result(effect.request_id, effect.result)
        else:
            line = jsonrpc.encode_error(effect.request_id, effect.error_code, effect.error_message)
        self.link.send(line, effect.key)

    def _setting(self, method: str, params: bytes) -> tuple[tuple[str, object], ...] | None:
        """What a set_mode or set_config_option sets, when it is one that a wake can set again."""
        if method not in ("session/set_mode", "session/set_config_option"):
            return None
        told = as_object(parse_json(params))
        if method == "session/set_mode" and isinstance(told.get("modeId"), str):
            return (("modeId", told["modeId"]),)
        if isinstance(told.get("configId"), str) and "value" in told:
            mode = (("modeId", told["value"]),) if told["configId"] == self.mode_option else ()
            return (("configId", told["configId"]), ("value", told["value"]), *mode)
        return None

    # ------------------------------------------------------------ its end

    async def retire(self, after: HostSeq, grace_s: float) -> m.Event | None:
        """Retired or RetireRefused. None when the harness or its host went instead: HarnessExited was posted then.

        A host that does not answer is doubt, and doubt keeps the process: its retirement is taken back.
        """
        try:
            header = await self.link.request(
                "retire", RETIRE_BUDGET_S + grace_s, after=after, grace_ms=round(grace_s * 1000), park=False
            )
        except HostLost as error:
            await self.link.give_up(error.message)
            return None
        except AcpmuxError as error:
            self.link.retire_cancel()
            return m.RetireRefused("unknown", error.message, False, ())
        if header["t"] == "refused":
            return m.RetireRefused(
                str(header.get("kind")),
                str(header.get("reason")),
                bool(header.get("retry")),
                blockers_of(header),
            )
        await self.link.close()
        return retired_of(header)

    async def end(self, all_: bool) -> m.Event:
        """Row 6: HostEnded, or HostSurvived when the host neither answers nor goes. What it still says is not heard."""
        self._awake, self._deaf = False, True
        try:
            header = await self.link.request("end", END_BUDGET_S, all=all_)
        except AcpmuxError as error:
            await self.link.give_up(error.message)
            if self._gone is not None:
                return m.HostEnded((), ())
            return m.HostSurvived(f"the agent's host did not end it: {error.message}")
        await self.link.close()
        return host_ended_of(header)

    async def abandon(self) -> None:
        """Ends what a failed start has left, and waits until it is gone."""
        if self._link is not None and self._gone is None:
            await self.end(False)
        elif self._link is not None:
            await self._link.close()


def _utf8(line: bytes) -> bytes:
    """The line, with U+FFFD for each byte that is none of a text."""
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return line.decode("utf-8", "replace").encode("utf-8")
    return line


def _exit_text(event: m.HarnessExited) -> str:
    lines = event.stderr.strip().splitlines()
    said = f"; it said: {' / '.join(lines[-3:])[:500]}" if lines else " and said nothing"
    return f"the agent exited at its start {event.how}{said}. Try its command by itself"
