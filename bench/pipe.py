"""The same scripted agent on a bare pipe and through acpmux, for figures in one run.

`python bench/pipe.py SOCKET SESSION COUNT` is one client of its own: it follows a session until it has heard COUNT
updates, then prints when the last came and how long each was under way.
"""

import json
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from acpmux.client import Connection
from kit.product import SCRIPTED, Product

SESSION = "agent-session-1"


def delay_ms(line: bytes) -> float | None:
    """How long an update of the `ticks` step was under way, None for any other line."""
    _, found, rest = line.partition(b'"at ')
    return (time.monotonic() - float(rest.partition(b'"')[0])) * 1000 if found else None


def ticks(count: int, per_second: int) -> str:
    return json.dumps([{"do": "ticks", "count": count, "per_second": per_second}])


class BarePipe:
    def __init__(self, script: Path) -> None:
        self._script = script
        self._last = 0

    def open(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, SCRIPTED, str(self._script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.call("initialize", {"protocolVersion": 1})
        self.call("session/resume", {"sessionId": SESSION, "cwd": "/", "mcpServers": []})
        self.call("session/set_mode", {"sessionId": SESSION, "modeId": "default"})

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

    def delays_ms(self, count: int, per_second: int) -> list[float]:
        """How long each of `count` updates at this pace is under way on the bare pipe."""
        assert self._process.stdin is not None and self._process.stdout is not None
        prompt = [{"type": "text", "text": ticks(count, per_second)}]
        told = {"id": 9, "method": "session/prompt", "params": {"sessionId": SESSION, "prompt": prompt}}
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **told}).encode() + b"\n")
        self._process.stdin.flush()
        found: list[float] = []
        while len(found) < count:
            delay = delay_ms(self._process.stdout.readline())
            if delay is not None:
                found.append(delay)
        self._process.stdout.readline()
        return found


class Readers:
    """Clients in processes of their own, all following one session."""

    def __init__(self, product: Product, name: str, clients: int, count: int) -> None:
        command = [sys.executable, __file__, str(product.home / "acpmux.sock"), name, str(count)]
        env = product.env | {"PYTHONPATH": str(Path(SCRIPTED).parents[1])}
        self._readers = [subprocess.Popen(command, stdout=subprocess.PIPE, env=env) for _ in range(clients)]
        for reader in self._readers:
            assert reader.stdout is not None and reader.stdout.readline() == b"follows\n"

    def results(self) -> list[tuple[float, list[float]]]:
        """Of each: the moment of its last update, and the delays of those that tell when they were written."""
        return [tuple(json.loads(reader.communicate(timeout=120)[0])) for reader in self._readers]


def flood_rate(product: Product, name: str, clients: int, count: int) -> float:
    """Updates a second, from the prompt to the last update at the last of the clients."""
    readers = Readers(product, name, clients, count)
    began = time.monotonic()
    product.ok("send", name, json.dumps([{"do": "flood", "count": count}]), "--no-wait")
    return count / (max(last for last, _ in readers.results()) - began)


def delays_ms(product: Product, name: str, count: int, per_second: int) -> list[float]:
    """How long each of `count` updates at this pace is under way from the agent's write to a client's read."""
    readers = Readers(product, name, 1, count)
    product.ok("send", name, ticks(count, per_second), "--no-wait")
    return readers.results()[0][1]


def _read(path: str, name: str, count: int) -> None:
    connection = Connection(path)
    connection.request("_acpmux/watch", {"sessionId": name})
    print("follows", flush=True)
    link, rest, heard, delays = socket.socket(fileno=connection.fd), b"", 0, list[float]()
    link.settimeout(120)
    while heard < count:
        *lines, rest = (rest + link.recv(1 << 20)).split(b"\n")
        for line in lines:
            if b'"session/update"' in line:
                heard += 1
                delay = delay_ms(line)
                if delay is not None:
                    delays.append(delay)
    print(json.dumps([time.monotonic(), delays]))


if __name__ == "__main__":
    _read(sys.argv[1], sys.argv[2], int(sys.argv[3]))
