"""A small real MCP server over stdio: a clock and a notebook. `python -m acpmux.agents.demo_mcp`.

It speaks the tools part of the Model Context Protocol, needs nothing but the standard library, and ends with its input.
"""

import json
import sys
import time
from typing import Any

from acpmux.untyped import as_object, as_text

VERSIONS = ("2025-06-18", "2025-03-26", "2024-11-05")  # newest first
LINE_BYTES = 16 * 1024 * 1024
TOOLS: tuple[dict[str, Any], ...] = (
    {"name": "clock", "description": "The time of day.", "inputSchema": {"type": "object", "properties": {}}},
    {
        "name": "note",
        "description": "Keeps a note until the server ends, and tells all notes.",
        "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    },
)


class Refused(Exception):
    """A request that is answered with a JSON-RPC error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Server:
    """Answers requests; keeps the notes."""

    def __init__(self) -> None:
        self._notes: list[str] = []

    def answer(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """The result of one request. Raises: Refused."""
        match method:
            case "initialize":
                asked = as_text(params.get("protocolVersion"))
                version = asked if asked in VERSIONS else VERSIONS[0]
                info = {"name": "acpmux-demo-mcp", "version": "1"}
                return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
            case "ping":
                return {}
            case "tools/list":
                return {"tools": list(TOOLS)}
            case "tools/call":
                text, failed = self._call(as_text(params.get("name")), as_object(params.get("arguments")))
                return {"content": [{"type": "text", "text": text}], "isError": failed}
            case _:
                raise Refused(-32601, f"no method {method[:100]!r}")

    def _call(self, tool: str | None, arguments: dict[str, Any]) -> tuple[str, bool]:
        """What a tool answers, and whether it failed."""
        if tool == "clock":
            return time.strftime("%H:%M:%S"), False
        if tool != "note":
            raise Refused(-32602, f"no tool {str(tool)[:100]!r}")
        text = as_text(arguments.get("text"))
        if text is None:
            return "a note needs a text", True
        self._notes.append(text)
        return "\n".join(self._notes), False


def reply_to(server: Server, line: bytes) -> dict[str, Any] | None:
    """The answer to one line; None for a notification or an answer."""
    try:
        message = as_object(json.loads(line))
    except (ValueError, RecursionError):
        return {"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "not JSON"}}
    method = as_text(message.get("method"))
    if method is None or "id" not in message:
        return None
    head: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
    try:
        return {**head, "result": server.answer(method, as_object(message.get("params")))}
    except Refused as refused:
        return {**head, "error": {"code": refused.code, "message": refused.message}}


def main() -> None:
    server = Server()
    while line := sys.stdin.buffer.readline(LINE_BYTES):
        reply = reply_to(server, line) if line.strip() else None
        if reply is not None:
            print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
