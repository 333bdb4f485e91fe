"""The MCP servers under the demo agent: started with a session, spoken to over their pipes, ended with the agent."""

import json
import os
import select
import subprocess
import time
from collections.abc import Iterable
from typing import Any

from acpmux.untyped import as_list, as_object, as_text

PROTOCOL_VERSION = "2025-06-18"
ANSWER_S = 10.0  # a cold server in Python or Node answers within a few seconds; a silent one is left out
END_S = 1.0  # a server ends with its input, a dev server on TERM; one that does not is killed
LINE_BYTES = 16 * 1024 * 1024


class ServerFailed(Exception):
    """An MCP server did not start, went away, or did not answer; the agent goes on without it."""


class McpServer:
    """One MCP server over stdio, handshake done. Raises: ServerFailed from the start and from every call."""

    def __init__(self, told: dict[str, Any], cwd: str) -> None:
        self.name = as_text(told.get("name")) or "server"
        command = as_text(told.get("command"))
        if command is None:
            raise ServerFailed(f"{self.name} has no command; only servers over stdio can be used")
        env = {str(pair.get("name")): str(pair.get("value")) for pair in map(as_object, as_list(told.get("env")))}
        try:
            self._process = subprocess.Popen(
                [command, *map(str, as_list(told.get("args")))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **env},
                cwd=cwd,
            )
        except (OSError, ValueError) as error:
            raise ServerFailed(f"{self.name} did not start: {error}") from None
        self._last_id = 0
        self._unread = b""
        try:
            self.tools = self._greet()
        except ServerFailed:
            end([self])
            raise

    def call_tool(self, tool: str, arguments: dict[str, Any]) -> str:
        """The text a tool answers."""
        result = self._call("tools/call", {"name": tool, "arguments": arguments})
        texts = [as_text(as_object(part).get("text")) for part in as_list(result.get("content"))]
        return "\n".join(text for text in texts if text is not None)

    def stop_input(self) -> None:
        """Asks it to end, as the protocol does: its input ends, then TERM."""
        if self._process.stdin is not None:
            try:
                self._process.stdin.close()
            except OSError:
                pass  # it is gone, with something of ours unread
        self._process.terminate()

    def wait(self) -> None:
        """Returns when it is gone and reaped."""
        wait_or_kill(self._process)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _greet(self) -> tuple[str, ...]:
        info = {"name": "acpmux-demo-agent", "version": "1"}
        self._call("initialize", {"protocolVersion": PROTOCOL_VERSION, "capabilities": {}, "clientInfo": info})
        self._send({"method": "notifications/initialized"})
        tools = map(as_object, as_list(self._call("tools/list", {}).get("tools")))
        return tuple(str(tool.get("name")) for tool in tools)

    def _call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._last_id += 1
        self._send({"id": self._last_id, "method": method, "params": params})
        deadline = time.monotonic() + ANSWER_S
        while True:
            message = self._message(deadline)
            if message.get("id") == self._last_id:
                if "error" in message:
                    why = as_object(message["error"]).get("message")
                    raise ServerFailed(f"{self.name} refused {method}: {why}")
                return as_object(message.get("result"))

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise ServerFailed(f"{self.name} is gone") from None

    def _message(self, deadline: float) -> dict[str, Any]:
        """The next message; lines that are none are passed over."""
        assert self._process.stdout is not None
        fd = self._process.stdout.fileno()
        while b"\n" not in self._unread:
            if not select.select([fd], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise ServerFailed(f"{self.name} did not answer within {ANSWER_S:g} s")
            data = os.read(fd, 65536)
            self._unread += data
            if not data or len(self._unread) > LINE_BYTES:
                raise ServerFailed(f"{self.name} {'sent too long a line' if data else 'is gone'}")
        line, self._unread = self._unread.split(b"\n", 1)
        try:
            return as_object(json.loads(line))
        except ValueError:
            return {}


def wait_or_kill(process: subprocess.Popen[bytes]) -> None:
    """Reaps a process that was told to end; after `END_S` it is killed."""
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def end(servers: Iterable[McpServer]) -> None:
    """Ends them side by side and returns when none is left."""
    going = list(servers)
    for server in going:
        server.stop_input()
    for server in going:
        server.wait()
