"""What stands for a message that is too long to be kept: who asked is answered, and nobody waits for ever."""

import json
import re
from typing import Any

EDGE_BYTES = 64 * 1024  # of a line's head and of its tail: where an id may be looked for
_TAIL = re.compile(r',\s*"id"\s*:\s*(-?\d+|"[^"\\]*")\s*(?:,\s*"(?:jsonrpc|method)"\s*:\s*"[^"\\]*"\s*)*\}\s*$')
_scanner = json.JSONDecoder()


def stand_in(head: bytes, tail: bytes, size_bytes: int) -> bytes:
    """An error answer for an answer, a request that nobody serves for a request, else a note."""
    found, cut = _members(head.decode("utf-8", "replace"))
    ends = _TAIL.search(tail.decode("utf-8", "replace"))
    number = found.get("id", json.loads(ends[1]) if ends else None)
    told: dict[str, Any] = {"jsonrpc": "2.0"}
    known = isinstance(number, int | str) and not isinstance(number, bool)
    if known:
        told["id"] = number
    if known and cut in ("result", "error"):
        told["error"] = {"code": -32603, "message": f"the answer of {size_bytes} bytes is over the limit of 64 MiB"}
    else:
        told |= {"method": "_acpmux/oversized", "params": {"bytes": size_bytes}}
    return json.dumps(told).encode()


def _members(text: str) -> tuple[dict[str, Any], str]:
    """The members of an object that begins here, and the name of the first whose value is not whole."""
    found: dict[str, Any] = {}
    name, at = "", _skip(text, 0, "{")
    try:
        while True:
            name, at = _scanner.raw_decode(text, at)
            value, at = _scanner.raw_decode(text, _skip(text, at, ":"))
            found[name] = value
            at = _skip(text, at, ",")
    except (ValueError, IndexError, RecursionError):
        return found, str(name)


def _skip(text: str, at: int, mark: str) -> int:
    while text[at] in " \t\r\n" or text[at] == mark:
        at += 1
    return at
