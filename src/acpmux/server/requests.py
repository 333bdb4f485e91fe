"""What requests hold, as values; and what answers tell."""

import json
from typing import Any

from acpmux.durations import parse_duration
from acpmux.errors import AcpmuxError, UsageFault
from acpmux.hub.actor import Actor
from acpmux.hub.answers import Outcome
from acpmux.model.session import McpServer, Policy
from acpmux.untyped import as_object, parse_json
from acpmux.wire import mux


class MethodNotFound(AcpmuxError):
    code = "usage"
    rpc_code = -32601
    exit_code = 2


def with_settings(actor: Actor, told: dict[str, Any]) -> dict[str, Any]:
    checkpoint = actor.session.checkpoint
    if checkpoint.modes is not None:
        told["modes"] = as_object(parse_json(checkpoint.modes)) | {"currentModeId": checkpoint.mode}
    if checkpoint.config_options is not None:
        told["configOptions"] = parse_json(checkpoint.config_options)
    return told


def error_object(actor: Actor, outcome: Outcome) -> bytes:
    """A failed turn: the harness's own error where it sent one, with what acpmux knows beside it."""
    told = parse_json(outcome.payload)
    error = as_object(told.get("error"))
    data: Any = error.get("data")
    ours = {"code": told["code"], "detail": None, "sessionId": actor.session_id, "retryable": True}
    ours |= {"promptId": outcome.prompt_id, "agentData": data}
    return json.dumps({"code": error.get("code", -32603), "message": told["message"], "data": ours}).encode()


def server_of(told: mux.McpServerSpec) -> McpServer:
    if told.command is None:
        raise UsageFault(f"the MCP server {told.name[:60]!r} has no command; servers by URL are not there yet")
    return McpServer(told.name, told.command, tuple(told.args), tuple((item.name, item.value) for item in told.env))


def policy_of(text: str | None) -> Policy | None:
    try:
        return None if text is None else Policy(text)
    except ValueError:
        raise UsageFault(f"{text!r} is no policy; policies are {', '.join(p.value for p in Policy)}") from None


def idle_of(text: str | None) -> tuple[float | None, bool]:
    """The session's own period, and whether it never sleeps."""
    if text is None:
        return None, False
    try:
        after = parse_duration(text)
    except ValueError as error:
        raise UsageFault(str(error)) from None
    return after, after is None
