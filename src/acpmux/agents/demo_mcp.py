"""A small real MCP server over stdio: a clock and a notebook. `python -m acpmux.agents.demo_mcp`."""

import json
import sys
import time
from typing import Any

TOOLS = [
    {"name": "clock", "description": "The time of day.", "inputSchema": {"type": "object", "properties": {}}},
    {
        "name": "note",
        "description": "Keeps a note until the server ends.",
        "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    },
]


class Server:
    """Answers the requests of the Model Context Protocol that a client with tools makes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def answer(self, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
        """The result, None for a method that is not known."""
        if method == "initialize":
            version = params.get("protocolVersion", "2025-06-18")
            info = {"name": "acpmux-demo", "version": "1"}
            return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
        if method == "tools/list":
            return {"tools": TOOLS}
        if method == "tools/call":
            return {"content": [{"type": "text", "text": self._call(params.get("name"), params.get("arguments") or {})}]}
        return {} if method == "ping" else None

    def _call(self, name: Any, arguments: dict[str, Any]) -> str:
        if name == "clock":
            return time.strftime("%H:%M:%S")
        self.notes.append(str(arguments.get("text", "")))
        return f"{len(self.notes)} note(s) kept"


def main() -> None:
    server = Server()
    for line in sys.stdin:
        told = json.loads(line)
        if "id" not in told or "method" not in told:
            continue
        result = server.answer(told["method"], told.get("params") or {})
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": told["id"]}
        reply |= {"result": result} if result is not None else {"error": {"code": -32601, "message": "no such method"}}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
