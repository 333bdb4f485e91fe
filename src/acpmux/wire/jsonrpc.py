"""JSON-RPC 2.0 messages with their payloads kept as the bytes they came in.

An envelope is decoded, a payload never: unknown fields, nulls, big integers and key order pass through untouched.
An id is raw
JSON too, so 1 and "1" stay two ids.
"""

import json
from dataclasses import dataclass
from typing import Any

import msgspec

from acpmux.untyped import parse_json


class NotAMessage(Exception):
    """A line that is no JSON-RPC message; the text says why."""


@dataclass(frozen=True, slots=True)
class Request:
    id: bytes
    method: str
    params: bytes


@dataclass(frozen=True, slots=True)
class Notification:
    method: str
    params: bytes


@dataclass(frozen=True, slots=True)
class Response:
    """`payload` is the raw result when `ok`, else the raw error object."""

    id: bytes
    ok: bool
    payload: bytes


Message = Request | Notification | Response

_ABSENT = msgspec.Raw(b"")


class _Envelope(msgspec.Struct):
    id: msgspec.Raw = _ABSENT
    method: str | None = None
    params: msgspec.Raw = _ABSENT
    result: msgspec.Raw = _ABSENT
    error: msgspec.Raw = _ABSENT


_decoder = msgspec.json.Decoder(_Envelope)
_scanner = json.JSONDecoder()


def decode(line: bytes) -> Message:
    """The message of one line. Raises: NotAMessage."""
    return _classify(_envelope(line))


def _envelope(line: bytes) -> _Envelope:
    try:
        return _decoder.decode(line)
    except (msgspec.DecodeError, RecursionError):
        pass  # Node emits lone surrogates, which msgspec refuses
    found = members(line)
    method = found.get("method")
    if method is not None and not method.startswith(b'"'):
        raise NotAMessage("the method is not a text")
    return _Envelope(
        id=msgspec.Raw(found.get("id", b"")),
        method=None if method is None else parse_json(method),
        params=msgspec.Raw(found.get("params", b"")),
        result=msgspec.Raw(found.get("result", b"")),
        error=msgspec.Raw(found.get("error", b"")),
    )


def members(raw: bytes) -> dict[str, bytes]:
    """The members of a JSON object, each value as the bytes it came in; of one key the last holds.

    Raises: NotAMessage.
    """
    try:
        return {key: bytes(value) for key, value in msgspec.json.decode(raw, type=dict[str, msgspec.Raw]).items()}
    except (msgspec.DecodeError, RecursionError):
        pass
    try:
        return _scan(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise NotAMessage(f"not UTF-8: {error.reason} at byte {error.start}") from None
    except (ValueError, RecursionError, IndexError, StopIteration) as error:
        raise NotAMessage(f"not a JSON object: {str(error)[:200]}") from None


def _scan(text: str) -> dict[str, bytes]:
    """The standard library's scanner, member by member: it takes lone surrogates, and tells where each value ends."""
    parse_json(text)  # whole and well-formed, or ValueError
    found: dict[str, bytes] = {}
    at = _skip(text, _skip(text, 0, "") + 1, ",") if text.lstrip()[:1] == "{" else len(text) + 1
    while text[at] != "}":
        key, at = _scanner.raw_decode(text, at)
        start = _skip(text, at, ":")
        _, at = _scanner.raw_decode(text, start)
        found[key] = text[start:at].encode("utf-8")
        at = _skip(text, at, ",")
    return found


def _skip(text: str, at: int, mark: str) -> int:
    """The next place that is neither white space nor `mark`."""
    while text[at] in " \t\r\n" or (mark and text[at] == mark):
        at += 1
    return at


def _classify(envelope: _Envelope) -> Message:
    request_id = bytes(envelope.id)
    if envelope.method is not None:
        if request_id in (b"",):
            return Notification(envelope.method, bytes(envelope.params))
        return Request(request_id, envelope.method, bytes(envelope.params))
    if request_id:
        if bytes(envelope.error) not in (b"", b"null"):
            return Response(request_id, False, bytes(envelope.error))
        if bytes(envelope.result):
            return Response(request_id, True, bytes(envelope.result))
    raise NotAMessage("an object without a method, a result or an error")


def encode_request(request_id: int | bytes, method: str, params: bytes) -> bytes:
    raw = request_id if isinstance(request_id, bytes) else str(request_id).encode()
    return b'{"jsonrpc":"2.0","id":' + raw + b',"method":' + json.dumps(method).encode() + _params(params) + b"}"


def encode_notification(method: str, params: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","method":' + json.dumps(method).encode() + _params(params) + b"}"


def encode_result(request_id: bytes, result: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":' + request_id + b',"result":' + result + b"}"


def encode_error(request_id: bytes, code: int, message: str, data: Any = None) -> bytes:
    error: dict[str, Any] = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return b'{"jsonrpc":"2.0","id":' + request_id + b',"error":' + json.dumps(error).encode() + b"}"


def encode_raw_error(request_id: bytes, error: bytes) -> bytes:
    """An error object of somebody else's, untouched."""
    return b'{"jsonrpc":"2.0","id":' + request_id + b',"error":' + error + b"}"


def _params(params: bytes) -> bytes:
    return b',"params":' + params if params else b""
