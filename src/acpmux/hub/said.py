"""What a harness's messages mean to a session, and how much of what means nothing is kept."""

import json
from typing import Any

from acpmux.errors import HarnessError
from acpmux.model.ids import HostSeq, PromptId
from acpmux.rules import messages as m
from acpmux.untyped import as_object, parse_json
from acpmux.wire import acp, jsonrpc

NOISE_KEPT = 60  # in NOISE_S: enough for a person to see what it prints; the rest is counted
NOISE_S = 60.0
SAMPLE_BYTES = 200


class NoiseGate:
    """Lines that are no messages: the first of each minute are kept, each with how many before it were not."""

    def __init__(self) -> None:
        self._began = -NOISE_S
        self._kept = 0
        self._skipped = 0

    def pass_on(self, now: float, reason: str, line: bytes) -> m.Noise | m.Skipped:
        if now >= self._began + NOISE_S:
            self._began, self._kept = now, 0
        if self._kept >= NOISE_KEPT:
            self._skipped += 1
            return m.Skipped()
        self._kept += 1
        skipped, self._skipped = self._skipped, 0
        return m.Noise(reason, line[:SAMPLE_BYTES].decode("utf-8", "replace"), skipped)


def said_request(message: jsonrpc.Request) -> m.Said:
    if message.method == "session/request_permission":
        facts = acp.parse_permission(message.params)
        return m.PermissionRequest(message.id, message.params, facts.title, facts.tool_kind, facts.options)
    return m.OtherRequest(message.id, message.method, message.params)


def said_notification(message: jsonrpc.Notification) -> m.Said:
    if message.method == "session/update" and not message.params.lstrip().startswith(b"{"):
        return m.Noise("a session/update whose params are no object", message.params[:200].decode("utf-8", "replace"))
    if message.method == "session/update":
        return m.Update(acp.parse_update(message.params).kind, message.params)
    if message.method == "$/cancel_request":
        try:
            withdrawn = json.dumps(parse_json(message.params)["requestId"], separators=(",", ":")).encode()
        except (ValueError, KeyError, TypeError):
            withdrawn = None
        return m.OtherNotification(message.method, message.params, withdrawn)
    return m.OtherNotification(message.method, message.params)


def turn_over(host_seq: HostSeq, prompt_id: PromptId, response: jsonrpc.Response) -> m.Event:
    told = _object(response.payload)
    if response.ok:
        reason = told.get("stopReason")
        return m.TurnEnded(host_seq, prompt_id, reason if isinstance(reason, str) else "end_turn", response.payload)
    code = told.get("code")
    return m.TurnFailed(
        host_seq, prompt_id, code if isinstance(code, int) else -32603, error_text(response), response.payload
    )


def error_text(response: jsonrpc.Response) -> str:
    """The message of an error answer, with the detail agents put into its data, bounded."""
    told = _object(response.payload)
    text = str(told.get("message") or "the agent answered with an error")
    data: Any = told.get("data")
    detail = as_object(data).get("details") or as_object(data).get("message") or data
    return (f"{text}: {detail}" if isinstance(detail, str) and detail != text else text)[:1000]


def require(response: jsonrpc.Response, doing: str) -> bytes:
    """The result. Raises: HarnessError naming what was being done."""
    if response.ok:
        return response.payload
    code = _object(response.payload).get("code")
    if code == -32000:
        raise HarnessError(
            f"the agent wants you to sign in first ({error_text(response)}): start it once by itself and log in"
        )
    raise HarnessError(f"{doing}: {error_text(response)}", detail=str(code))


def _object(payload: bytes) -> dict[str, Any]:
    try:
        told = parse_json(payload)
    except ValueError:
        return {}
    return as_object(told)
