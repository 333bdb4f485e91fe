"""Hosts kept ready (`pool = N`): taken by a new session and by a wake, and by nobody whom they would not fit."""

import json
import os
import signal
from pathlib import Path

import pytest

from kit.product import Product, pid_said, runs, wait_for

SLEEPER = ["sleep", "1111"]


@pytest.fixture
def pooled(product: Product) -> Product:
    product.agent("ready", profile="demo", config="pool = 1\n")
    product.kept_ready()
    return product


def new(product: Product, name: str, *more: str) -> int:
    """The pid of the session's host."""
    product.ok("new", "-a", "ready", "-n", name, "--cwd", str(product.folder), *more)
    return product.json("info", name)["hostPid"]


def test_new_session_and_a_wake_take_a_host_that_is_ready_and_another_is_started(pooled: Product) -> None:
    ready = pooled.kept_ready()
    assert [new(pooled, "s")] == ready
    assert pooled.ok("send", "s", "hello") == "echo: hello\n"
    assert pooled.kept_ready() != ready
    pooled.ok("hibernate", "s")
    assert not runs(ready[0])
    ready = pooled.kept_ready()
    pooled.ok("wake", "s")
    assert [pooled.json("info", "s")["hostPid"]] == ready
    assert pooled.ok("send", "s", "again") == "echo: again\n"


def test_taken_host_gets_the_folder_and_the_servers_of_its_session(pooled: Product) -> None:
    servers = pooled.folder / "mcp.json"
    servers.write_text(json.dumps({"mcpServers": {"clock": {"command": SLEEPER[0], "args": SLEEPER[1:]}}}))
    ready = pooled.kept_ready()
    assert [new(pooled, "s", "--mcp-config", str(servers))] == ready
    told = [json.loads(line).get("got", {}) for line in (pooled.folder / "ready.record").read_text().splitlines()]
    opened = [one["params"] for one in told if one.get("method") == "session/new"]
    assert [one["cwd"] for one in opened] == [str(pooled.folder)]
    rows = [row for row in pooled.json("ps", "s")["processes"] if row["verdict"] == "server"]
    assert [row["server"] for row in rows] == ["clock"]
    server = rows[0]["pid"]
    pooled.ok("hibernate", "s")
    assert not runs(server)


def test_work_that_left_the_tree_of_a_taken_host_is_known_as_the_sessions(pooled: Product) -> None:
    new(pooled, "s")
    left = pid_said(pooled.steps("s", {"do": "detach", "command": SLEEPER}))
    pooled.ok("hibernate", "s")
    assert runs(left)
    assert [(row["pid"], row["verdict"]) for row in pooled.json("ps", "s")["processes"]] == [(left, "left-running")]
    pooled.ok("stop", "s", "--all")
    assert not runs(left)


def test_inside_a_taken_host_at_names_its_session(pooled: Product) -> None:
    host = new(pooled, "s")
    env = dict(item.split("=", 1) for item in Path(f"/proc/{leader(host)}/environ").read_text().split("\0") if item)
    assert "ACPMUX_SESSION_ID" not in env
    pooled.env["ACPMUX_HOST"] = env["ACPMUX_HOST"]
    assert pooled.json("info", "@")["name"] == "s"


def test_agent_with_another_environment_starts_its_own(product: Product) -> None:
    product.agent("ready", profile="demo", config="pool = 1\n")
    with open(product.home / "config.toml", "a") as file:
        file.write('[agents.other]\nprofile = "demo"\nenv = { OTHER = "1" }\n')
    ready = product.kept_ready()
    product.ok("new", "-a", "other", "-n", "o")
    assert product.json("info", "o")["hostPid"] not in ready
    assert product.kept_ready() == ready


def test_ready_host_that_dies_is_no_loss(pooled: Product) -> None:
    (ready,) = pooled.kept_ready()
    os.kill(leader(ready), signal.SIGKILL)
    wait_for(lambda: not pooled.json("daemon", "status")["pool"], "the pool to notice")
    assert new(pooled, "s") != ready
    assert pooled.ok("send", "s", "hello") == "echo: hello\n"
    (ready,) = pooled.kept_ready()
    os.kill(ready, signal.SIGKILL)
    assert new(pooled, "t") != ready
    assert pooled.ok("send", "t", "hello") == "echo: hello\n"


def test_ready_hosts_end_with_the_daemon_and_taken_ones_do_not(pooled: Product) -> None:
    taken = new(pooled, "s")
    (ready,) = pooled.kept_ready()
    os.kill(pooled.json("daemon", "status")["pid"], signal.SIGKILL)
    wait_for(lambda: not runs(ready), "the ready host to end")
    assert runs(taken)
    assert pooled.ok("send", "s", "hello") == "echo: hello\n"
    assert pooled.json("info", "s")["hostPid"] == taken


def test_pool_of_an_agent_that_can_not_be_started_ahead_is_a_fault_of_the_config(product: Product) -> None:
    with open(product.home / "config.toml", "a") as file:
        file.write("[agents.gemini]\npool = 1\n")
    assert "agents.gemini.pool must be 0" in product.run("doctor").stdout


def leader(host: int) -> int:
    return int(Path(f"/proc/{host}/task/{host}/children").read_text().split()[0])
