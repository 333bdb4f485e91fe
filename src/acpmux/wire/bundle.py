"""A session as one bundle: lines of JSON, the session first, then each of its records, its body untouched."""

import json
from typing import Any

import msgspec

from acpmux.errors import UsageFault
from acpmux.model.ids import Seq
from acpmux.model.record import Kind, Record, Stored

FORMAT, VERSION = "acpmux session", 1
TEXT_LIMIT = 4096  # of a name, a title, a folder
_INT64 = 1 << 62


class Head(msgspec.Struct, rename="camel"):
    """What a session is, without what could be run or a secret: no command, no servers, no environment."""

    format: str
    version: int
    name: str
    agent: str
    cwd: str
    created_at_ms: int
    policy: str
    last_seq: int
    agent_session_id: str | None = None
    prompted: bool = False
    mode: str | None = None
    options: list[tuple[str, msgspec.Raw]] = []
    title: str | None = None
    idle_after_s: float | None = None
    pinned: bool = False
    servers: list[str] = []


class _Line(msgspec.Struct, rename="camel"):
    seq: int
    at_ms: int
    kind: str
    cause: str
    body: msgspec.Raw
    prompt_id: str | None = None


def encode_record(stored: Stored) -> bytes:
    record = stored.record
    told: dict[str, Any] = {"seq": stored.seq, "atMs": record.at_ms, "kind": record.kind.value, "cause": record.cause}
    if record.prompt_id is not None:
        told["promptId"] = record.prompt_id
    return json.dumps(told).encode()[:-1] + b',"body":' + record.body + b"}"


def decode_head(data: bytes) -> Head:
    """Raises: UsageFault naming what is wrong."""
    try:
        head = msgspec.json.decode(data, type=Head)
    except msgspec.MsgspecError as error:
        raise UsageFault(f"line 1 is not the head of a session's bundle: {error}") from None
    if head.format != FORMAT or head.version != VERSION:
        raise UsageFault(
            f"line 1: {head.format[:40]!r} version {head.version} is not what this acpmux reads ({FORMAT!r} {VERSION})"
        )
    texts = (head.name, head.agent, head.cwd, head.agent_session_id, head.mode, head.title)
    if any(text is not None and len(text) > TEXT_LIMIT for text in texts):
        raise UsageFault(f"line 1: a text is over {TEXT_LIMIT} characters")
    return head


def decode_record(data: bytes, expected: Seq) -> Stored:
    """Raises: UsageFault naming the record and what is wrong."""
    where = f"record {expected} (line {expected + 1})"
    try:
        line = msgspec.json.decode(data, type=_Line)
        kind = Kind(line.kind)
    except (msgspec.MsgspecError, ValueError) as error:
        raise UsageFault(f"{where}: {error}") from None
    if line.seq != expected:
        raise UsageFault(f"{where}: its seq is {line.seq}")
    if not 0 <= line.at_ms < _INT64 or len(line.cause) > TEXT_LIMIT or len(line.prompt_id or "") > TEXT_LIMIT:
        raise UsageFault(f"{where}: a value is out of bounds")
    return Stored(expected, Record(kind, bytes(line.body), line.cause, line.at_ms, line.prompt_id))
