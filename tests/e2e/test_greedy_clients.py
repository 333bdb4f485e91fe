"""Clients that take more than their share: nobody else waits for them, and the daemon stays small."""

import json
import socket
import time
from pathlib import Path
from typing import Any

from kit.product import Product


def connected(product: Product) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(20)
    client.connect(str(product.home / "acpmux.sock"))
    return client


def ask(client: socket.socket, request_id: int = 1, method: str = "_acpmux/status") -> Any:
    client.sendall(json.dumps({"jsonrpc": "2.0", "id": request_id, "method": method, "params": {}}).encode() + b"\n")
    data = b""
    while not data.endswith(b"\n"):
        data += client.recv(1 << 20)
    return json.loads(data)


def resident_kb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def test_client_that_asks_and_never_reads_is_read_no_further_and_nobody_waits_for_it(product: Product) -> None:
    product.ok("daemon", "start")
    pid = product.json("daemon", "status")["pid"]
    before = resident_kb(pid)
    blob = b"".join(b'{"jsonrpc":"2.0","id":%d,"method":"_acpmux/agents","params":{}}\n' % n for n in range(2000))
    with connected(product) as greedy, connected(product) as other:
        greedy.settimeout(1)
        sent = 0
        try:
            while sent < 40_000_000:
                sent += greedy.send(blob)
        except TimeoutError:
            pass
        began = time.monotonic()
        assert ask(other)["result"]["pid"] == pid
        assert time.monotonic() - began < 2
        assert sent < 10_000_000
        assert resident_kb(pid) - before < 40_000


def test_many_requests_at_once_are_all_answered_when_they_are_read(product: Product) -> None:
    product.ok("daemon", "start")
    blob = b"".join(b'{"jsonrpc":"2.0","id":%d,"method":"_acpmux/pending","params":{}}\n' % n for n in range(3000))
    with connected(product) as client:
        client.sendall(blob)
        data = b""
        while data.count(b"\n") < 3000:
            data += client.recv(1 << 20)
    assert {json.loads(line)["id"] for line in data.splitlines()} == set(range(3000))
