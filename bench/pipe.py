"""The same scripted agent on a bare pipe and through acpmux, for figures in one run."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from acpmux.client import Connection, Notification
from kit.product import SCRIPTED, Product

CHUNK = {"sessionUpdate": "agent_message_chunk"}


class BarePipe:
    def __init__(self, script: Path) -> None:
        self._script = script
        self._last = 0

    def open(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, SCRIPTED, str(self._script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.call("initialize", {"protocolVersion": 1})
        self.call("session/resume", {"sessionId": "agent-session-1", "cwd": "/", "mcpServers": []})
        self.call("session/set_mode", {"sessionId": "agent-session-1", "modeId": "default"})

    def end(self) -> None:
        self._process.terminate()
        self._process.communicate()

    def open_and_end(self) -> None:
        self.open()
        self.end()

    def call(self, method: str, params: dict[str, Any]) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._last += 1
        told = {"jsonrpc": "2.0", "id": self._last, "method": method, "params": params}
        self._process.stdin.write(json.dumps(told).encode() + b"\n")
        self._process.stdin.flush()
        while True:
            answer = json.loads(self._process.stdout.readline())
            if answer.get("id") == self._last and "method" not in answer:
                return answer.get("result")

    def round_trip_ms(self) -> float:
        began = time.perf_counter()
        self.call("session/prompt", {"sessionId": "agent-session-1", "prompt": [{"type": "text", "text": "x"}]})
        return (time.perf_counter() - began) * 1000


class ThroughAcpmux:
    def __init__(self, product: Product) -> None:
        self._connection = Connection(str(product.home / "acpmux.sock"))
        self._session = "s"
        self._connection.request("_acpmux/wake", {"sessionId": "s"})
        self._connection.request("_acpmux/watch", {"sessionId": "s"})
        self._heard = 0

    def end(self) -> None:
        self._connection.close()

    def _hear(self, told: Notification) -> None:
        self._heard += told.method == "session/update"

    def _prompt(self, text: str) -> None:
        params = {"sessionId": self._session, "prompt": [{"type": "text", "text": text}]}
        self._connection.request("session/prompt", params, hear=self._hear)

    def round_trip_ms(self) -> float:
        began = time.perf_counter()
        self._prompt("x")
        return (time.perf_counter() - began) * 1000

    def flood_rate(self, count: int) -> float:
        """Updates a second from the first prompt byte to the last update heard."""
        self._heard = 0
        began = time.perf_counter()
        self._prompt(json.dumps([{"do": "flood", "count": count}]))
        assert self._heard == count, (self._heard, count)
        return count / (time.perf_counter() - began)
