"""Clients that take more than their share: nobody else waits for them, and the daemon stays small."""

import json
import resource
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

from kit.product import COMMAND, Product


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


def limits(pid: int) -> tuple[int, int]:
    return resource.prlimit(pid, resource.RLIMIT_NOFILE)


def limited(product: Product, soft: int, hard: int) -> None:
    """Starts the daemon under these limits."""
    script = f"ulimit -Sn {soft}; ulimit -Hn {hard}; exec {COMMAND} daemon start"
    subprocess.run(["bash", "-c", script], env=product.env, check=True, stdout=subprocess.DEVNULL, timeout=60)


def test_daemon_may_open_more_than_its_children_who_begin_with_what_it_was_given(product: Product) -> None:
    product.agent()
    limited(product, 200, 1000)
    product.ok("new", "-a", "scripted", "-n", "s")
    row = product.json("info", "s")
    pids = [product.json("daemon", "status")["pid"], row["hostPid"], row["pid"]]
    assert [limits(pid) for pid in pids] == [(1000, 1000), (200, 1000), (200, 1000)]


def test_daemon_without_a_free_descriptor_says_so_once_rests_and_goes_on_when_there_is_one(product: Product) -> None:
    limited(product, 64, 64)
    pid = product.json("daemon", "status")["pid"]
    clients = [connected(product) for _ in range(100)]
    ticks = cpu_ticks(pid)
    time.sleep(3)
    assert cpu_ticks(pid) - ticks < 50
    for client in clients:
        client.close()
    with connected(product) as client:
        assert ask(client)["result"]["pid"] == pid
    assert product.log().count("no client can be taken error=Too many open files") == 1
    assert (product.home / "logs/daemon.out").read_text() == ""


def cpu_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


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
