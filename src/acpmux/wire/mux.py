"""The shapes of `_acpmux/*`: what clients send is parsed into typed values here, what they get is built here."""

import json
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

import msgspec

from acpmux.errors import AcpmuxError, UsageFault
from acpmux.model.record import Kind, Stored
from acpmux.wire import acp
from acpmux.wire.jsonrpc import encode_notification

EVENTS_LIMIT = 1000  # records in one answer; a reader that wants more asks again behind the last
_S = TypeVar("_S", bound=msgspec.Struct)


class Params(msgspec.Struct, rename="camel"):
    """Base of every request's parameters; unknown fields are a newer client's and are left alone."""


class SessionParams(Params):
    session_id: str


class PromptSpec(Params):
    blocks: msgspec.Raw
    prompt_id: str | None = None
    on_permission: str | None = None


class McpConfigText(Params):
    path: str
    text: str


class NewExtras(Params):
    agent: str | None = None
    name: str | None = None
    policy: str | None = None
    idle_after: str | None = None
    mcp_config: McpConfigText | None = None
    prompt: PromptSpec | None = None


class NewMeta(Params):
    acpmux: NewExtras | None = None


class EnvItem(Params):
    name: str
    value: str


class McpServerSpec(Params):
    name: str
    command: str | None = None
    args: list[str] = []
    env: list[EnvItem] = []


class NewParams(Params):
    cwd: str
    mcp_servers: list[McpServerSpec] = []
    meta: NewMeta | None = msgspec.field(default=None, name="_meta")


class PromptExtras(Params):
    prompt_id: str | None = None
    on_permission: str | None = None
    reply: bool = False


class PromptMeta(Params):
    acpmux: PromptExtras | None = None


class PromptParams(SessionParams):
    prompt: msgspec.Raw
    meta: PromptMeta | None = msgspec.field(default=None, name="_meta")


class CancelParams(SessionParams):
    meta: PromptMeta | None = msgspec.field(default=None, name="_meta")


class EnqueueParams(SessionParams):
    prompt: msgspec.Raw
    prompt_id: str | None = None
    on_permission: str | None = None


class FollowParams(SessionParams):
    after_seq: int | None = None
    limit: int | None = None


class EventsParams(SessionParams):
    after_seq: int = 0
    limit: int = EVENTS_LIMIT
    kinds: list[str] | None = None
    last: int | None = None


class ExportParams(SessionParams):
    after_seq: Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)] = 0
    last_seq: int | None = None


class ImportParams(Params):
    """The lines of a bundle as texts: its head in `session`, then its records in order."""

    session: str | None = None
    records: list[str] = []
    done: bool = False
    name: str | None = None
    cwd: str | None = None


class KillParams(SessionParams):
    all: bool = False
    close: bool = False
    purge: bool = False


class AnswerParams(SessionParams):
    choice: str
    ask_id: str | None = None
    by: str | None = None


class SetParams(SessionParams):
    name: str | None = None
    policy: str | None = None
    idle_after: str | None = None
    title: str | None = None


class SessionsParams(Params):
    status: str | None = None


class ListParams(Params):
    cwd: str | None = None


class ShutdownParams(Params):
    end_agents: bool = False
    all: bool = False


def parse(params: bytes, kind: type[_S]) -> _S:
    """Raises: UsageFault naming the field and what is expected."""
    try:
        return msgspec.json.decode(params or b"{}", type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise UsageFault(f"the request's parameters are not as expected: {str(error)[:300]}") from None


def rfc3339(ms: int) -> str:
    """A UTC time with milliseconds, as the contract writes them."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def record_message(session_id: str, stored: Stored) -> bytes:
    """One record as the notification a follower gets: a harness's update as it came, all else as `_acpmux/event`."""
    record = stored.record
    if record.kind is Kind.UPDATE:
        told = {"seq": stored.seq, "at": rfc3339(record.at_ms)}
        return encode_notification("session/update", acp.merge_meta(record.body, told, session_id))
    return encode_notification("_acpmux/event", event(session_id, stored))


def event(session_id: str, stored: Stored) -> bytes:
    """One record as JSON; its body is untouched."""
    record = stored.record
    head = {
        "sessionId": session_id,
        "seq": stored.seq,
        "at": rfc3339(record.at_ms),
        "kind": record.kind.value,
        "cause": record.cause,
        "promptId": record.prompt_id,
    }
    return json.dumps(head).encode()[:-1] + b',"body":' + record.body + b"}"


def error_data(error: AcpmuxError) -> dict[str, Any]:
    """The `data` of an error answer."""
    told: dict[str, Any] = {
        "code": error.code,
        "detail": error.detail,
        "sessionId": error.session_id,
        "retryable": error.retryable,
    }
    return told | ({"blockers": error.blockers} if error.blockers else {})
