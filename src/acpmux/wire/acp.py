"""What acpmux reads out of ACP payloads, and the requests it makes itself (ACP v1, schema 1.2x).

Everything here comes from an agent and is hostile until parsed: a payload of another shape gives empty facts, never
an error, since
the payload itself is kept untouched. Only `sessionId` and `_meta` are ever rewritten.
"""

import json
from dataclasses import dataclass, field
from typing import Any

from acpmux import __version__
from acpmux.model.session import McpServer, Option
from acpmux.untyped import as_list, as_object, parse_json
from acpmux.wire.jsonrpc import NotAMessage, members

PROTOCOL_VERSION = 1
TITLE_CHARS = 300  # of a title shown in tables and asks


@dataclass(frozen=True, slots=True)
class UpdateFacts:
    kind: str
    mode: str | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True)
class PermissionFacts:
    title: str
    tool_kind: str
    options: tuple[Option, ...]


@dataclass(frozen=True, slots=True)
class SessionReply:
    """An answer to session/new, load, resume or set_config_option.

    `values` are the current raw values by option id; `mode_option` is the id of the option that stands for the mode.
    """

    agent_session_id: str | None
    mode: str | None
    modes: bytes | None
    config_options: bytes | None
    values: dict[str, bytes] = field(default_factory=dict[str, bytes])
    mode_option: str | None = None


@dataclass(frozen=True, slots=True)
class Capabilities:
    version: int
    load: bool
    resume: bool


def parse_update(params: bytes) -> UpdateFacts:
    """The kind of a session/update, and the two facts acpmux acts on."""
    update = as_object(as_object(_loads(params)).get("update"))
    kind = update.get("sessionUpdate")
    if not isinstance(kind, str):
        return UpdateFacts("")
    mode = update.get("currentModeId") if kind == "current_mode_update" else None
    if kind == "config_option_update":  # some agents tell their mode this way alone
        listed = map(as_object, as_list(update.get("configOptions")))
        mode = next((item.get("currentValue") for item in listed if item.get("category") == "mode"), None)
    text = None
    if kind == "agent_message_chunk":
        text = as_object(update.get("content")).get("text")
    return UpdateFacts(kind, mode if isinstance(mode, str) else None, text if isinstance(text, str) else None)


def parse_permission(params: bytes) -> PermissionFacts:
    """The facts of a session/request_permission. Options without an id and a kind can't be chosen and are left out."""
    told = as_object(_loads(params))
    call = as_object(told.get("toolCall"))
    listed = told.get("options")
    options = tuple(
        Option(item["optionId"], str(item.get("name") or item["optionId"]), item["kind"])
        for item in map(as_object, as_list(listed))
        if isinstance(item.get("optionId"), str) and isinstance(item.get("kind"), str)
    )
    title, kind = call.get("title"), call.get("kind")
    return PermissionFacts(
        title[:TITLE_CHARS] if isinstance(title, str) and title else "a tool call",
        kind if isinstance(kind, str) else "",
        options,
    )


def parse_session_reply(payload: bytes) -> SessionReply:
    """The facts of a session's opening; null, an empty object or junk give none."""
    try:
        found = members(payload)
    except NotAMessage:
        found = {}
    session_id = _loads(found.get("sessionId", b"null"))
    modes = found.get("modes", b"null")
    options = found.get("configOptions", b"null")
    mode = as_object(_loads(modes)).get("currentModeId")
    listed = _loads(options)
    values: dict[str, bytes] = {}
    mode_option = None
    for item in map(as_object, as_list(listed)):
        option_id = item.get("id")
        if isinstance(option_id, str) and "currentValue" in item:
            values[option_id] = json.dumps(item["currentValue"]).encode()
            if item.get("category") == "mode":
                mode_option = option_id
    return SessionReply(
        session_id if isinstance(session_id, str) else None,
        mode if isinstance(mode, str) else None,
        None if modes == b"null" else modes,
        options if as_list(listed) else None,
        values,
        mode_option,
    )


def parse_initialize(payload: bytes) -> Capabilities:
    told = as_object(_loads(payload))
    offered = as_object(told.get("agentCapabilities"))
    sessions = offered.get("sessionCapabilities")
    version = told.get("protocolVersion")
    return Capabilities(
        version if isinstance(version, int) else PROTOCOL_VERSION,
        offered.get("loadSession") is True,
        as_object(sessions).get("resume") is not None,
    )


def session_id_of(params: bytes) -> str | None:
    """The top-level sessionId of a request's params, None when it has none."""
    try:
        told = _loads(members(params).get("sessionId", b"null"))
    except NotAMessage:
        return None
    return told if isinstance(told, str) else None


def replace_session_id(params: bytes, session_id: str) -> bytes:
    """The params with this sessionId; every other member keeps its bytes and its place."""
    found = members(params or b"{}")
    found["sessionId"] = json.dumps(session_id).encode()
    return _joined(found)


def merge_meta(params: bytes, told: dict[str, Any], session_id: str | None = None) -> bytes:
    """The object with `_meta.acpmux` set, and where given with this sessionId; all else is untouched.

    A `_meta` that is there keeps its other members.
    """
    found = members(params or b"{}")
    meta = members(found["_meta"]) if found.get("_meta", b"").lstrip().startswith(b"{") else {}
    meta["acpmux"] = json.dumps(told).encode()
    if session_id is not None:
        found["sessionId"] = json.dumps(session_id).encode()
    found["_meta"] = _joined(meta)
    return _joined(found)


def _joined(found: dict[str, bytes]) -> bytes:
    return b"{" + b",".join(json.dumps(name).encode() + b":" + told for name, told in found.items()) + b"}"


# ------------------------------------------------------------ requests of our own


def initialize_params() -> bytes:
    """Version 1 and no capability: with nobody attached there is no one to serve fs, terminals or elicitations."""
    return _dumps(
        {
            "protocolVersion": PROTOCOL_VERSION,
            "clientCapabilities": {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False},
            "clientInfo": {"name": "acpmux", "title": "acpmux", "version": __version__},
        }
    )


def new_params(cwd: str, servers: tuple[McpServer, ...]) -> bytes:
    return _dumps({"cwd": cwd, "mcpServers": [_server(s) for s in servers]})


def load_params(session_id: str, cwd: str, servers: tuple[McpServer, ...]) -> bytes:
    return _dumps({"sessionId": session_id, "cwd": cwd, "mcpServers": [_server(s) for s in servers]})


def prompt_params(session_id: str, blocks: bytes) -> bytes:
    return b'{"sessionId":' + json.dumps(session_id).encode() + b',"prompt":' + blocks + b"}"


def prompt_text(blocks: bytes) -> str:
    """The text blocks of a prompt, joined by newlines."""
    texts = [as_object(item).get("text") for item in as_list(_loads(blocks))]
    return "\n".join(text for text in texts if isinstance(text, str))


def _server(server: McpServer) -> dict[str, Any]:
    env = [{"name": name, "value": value} for name, value in server.env]
    return {"name": server.name, "command": server.command, "args": list(server.args), "env": env}


def _dumps(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _loads(raw: bytes) -> Any:
    try:
        return parse_json(raw) if raw else None
    except ValueError:
        return None
