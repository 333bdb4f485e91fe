"""Servers of an agent's own configuration, through the installed command, on real processes (SPEC section 3)."""

import json
import os
import signal
from pathlib import Path

import pytest

from kit.product import Product, pid_said, runs, wait_for

CLOCK = ["sleep", "1111"]
OTHER = ["sleep", "2222"]


def write(product: Product, **servers: list[str]) -> Path:
    """The project's own `.mcp.json`."""
    told = {name: {"command": command[0], "args": command[1:]} for name, command in servers.items()}
    path = product.folder / ".mcp.json"
    path.write_text(json.dumps({"mcpServers": told}))
    return path


HOSTINGS = {"hosted": "", "direct": 'hosting = "direct"\n', "pooled": "pool = 1\n"}


@pytest.fixture(params=HOSTINGS)
def claude_like(product: Product, request: pytest.FixtureRequest) -> Product:
    """An agent that acpmux knows to read what Claude Code reads, started in each of the three ways."""
    product.env |= {"HOME": str(product.folder), "CLAUDE_CONFIG_DIR": str(product.folder)}
    product.agent("claude-like", profile="claude", config=HOSTINGS[request.param])
    if request.param == "pooled":
        product.kept_ready()
    return product


def new(product: Product, *more: str) -> None:
    product.ok("daemon", "start")
    ready = [row["hostPid"] for row in product.json("daemon", "status")["pool"]]
    product.ok("new", "-a", "claude-like", "-n", "s", "--cwd", str(product.folder), *more)
    assert product.json("info", "s")["hostPid"] in (ready or [product.json("info", "s")["hostPid"]])


def start(product: Product, command: list[str], **how: object) -> int:
    """The agent starts this as a direct child in its own group, as agents start their servers."""
    return pid_said(product.steps("s", {"do": "spawn", "command": command, "session": False, **how}))


def test_server_of_the_agents_own_config_is_known_by_its_command_line(claude_like: Product) -> None:
    write(claude_like, clock=CLOCK)
    new(claude_like)
    server = start(claude_like, CLOCK)
    rows = claude_like.json("ps", "s")["processes"]
    assert [(row["verdict"], row["server"]) for row in rows] == [("harness", None), ("server", "clock")]
    claude_like.ok("hibernate", "s")
    assert not runs(server)
    assert f"clock ({claude_like.folder}/.mcp.json)" in claude_like.ok("why", "s")


def test_config_edited_after_the_start_changes_nothing(claude_like: Product) -> None:
    write(claude_like, clock=CLOCK)
    new(claude_like)
    write(claude_like, other=OTHER)
    server, other = start(claude_like, CLOCK), start(claude_like, OTHER)
    assert f"pid {other}" in claude_like.fails("hibernate", "s")
    assert runs(server) and runs(other)
    os.kill(other, signal.SIGKILL)
    claude_like.ok("hibernate", "s")
    assert not runs(server)
    claude_like.ok("wake", "s")  # a new start reads it anew
    server = start(claude_like, CLOCK)
    assert f"pid {server}" in claude_like.fails("hibernate", "s")


def test_config_that_is_read_at_the_start_and_edited_then_changes_nothing(product: Product) -> None:
    config = product.folder / "config.toml"
    config.write_text(f'[mcp_servers.clock]\ncommand = "sleep"\nargs = ["{CLOCK[1]}"]\n')
    product.env["CODEX_HOME"] = str(product.folder)
    product.agent("claude-like", profile="zed-codex")
    new(product)
    config.write_text(f'[mcp_servers.other]\ncommand = "sleep"\nargs = ["{OTHER[1]}"]\n')
    server, other = start(product, CLOCK), start(product, OTHER)
    assert f"pid {other}" in product.fails("hibernate", "s")
    os.kill(other, signal.SIGKILL)
    product.ok("hibernate", "s")
    assert not runs(server)


def test_servers_command_with_the_mark_of_a_tool_is_no_server(claude_like: Product) -> None:
    write(claude_like, clock=CLOCK)
    new(claude_like)
    tool = start(claude_like, CLOCK, env={"AI_AGENT": "claude-code_2-1_agent"})
    assert "the agent started it as a command" in claude_like.fails("hibernate", "s")
    assert runs(tool)


def test_servers_command_in_a_session_of_its_own_is_a_tools(claude_like: Product) -> None:
    write(claude_like, clock=CLOCK)
    new(claude_like)
    tool = pid_said(claude_like.steps("s", {"do": "spawn", "command": CLOCK}))
    assert f"pid {tool}" in claude_like.fails("hibernate", "s")
    assert runs(tool)


def test_servers_command_one_level_deeper_is_no_server(claude_like: Product) -> None:
    write(claude_like, clock=CLOCK)
    new(claude_like)
    start(claude_like, ["sh", "-c", f"{' '.join(CLOCK)}; true"])
    claude_like.fails("hibernate", "s")


def test_broken_config_is_named_and_its_servers_keep_the_session_awake(claude_like: Product) -> None:
    write(claude_like).write_text('{"mcpServers": {  // mine')
    new(claude_like)
    server = start(claude_like, CLOCK)
    assert f"pid {server}" in claude_like.fails("hibernate", "s")
    assert f"{claude_like.folder}/.mcp.json: not plain JSON" in claude_like.ok("why", "s")


def test_config_on_a_file_system_that_hangs_keeps_the_session_awake_until_it_ends_otherwise(
    claude_like: Product,
) -> None:
    os.mkfifo(claude_like.folder / ".mcp.json")  # nobody writes: who opens it waits for ever
    new(claude_like)
    assert "could not be read within 3 s" in claude_like.fails("hibernate", "s")
    assert claude_like.ok("send", "s", "hello") == "echo: hello\n"
    claude_like.ok("stop", "s")


def test_harness_without_a_record_sleeps_only_with_nothing_under_it_and_a_stop_ends_both(claude_like: Product) -> None:
    os.mkfifo(claude_like.folder / ".mcp.json")
    claude_like.ok("daemon", "start")
    starting = claude_like.spawn("new", "-a", "claude-like", "-n", "s", "--cwd", str(claude_like.folder))
    daemon = claude_like.json("daemon", "status")["pid"]
    wait_for(lambda: any(map(reading_children, children(daemon))), "a host that reads")
    for pid in [pid for host in children(daemon) for pid in reading_children(host)]:
        os.kill(pid, signal.SIGKILL)  # its answer is then no answer
    starting.communicate(timeout=20)
    assert starting.returncode == 0
    child = start(claude_like, CLOCK)
    claude_like.ok("set", "s", "--idle-after", "300ms")
    wait_for(lambda: claude_like.json("why", "s")["refusals"] >= 3, "three refused passes")
    assert runs(child)
    claude_like.ok("stop", "s")
    assert not runs(child)


def children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task")
    return [int(child) for task in tasks.iterdir() for child in (task / "children").read_text().split()]


def reading_children(host: int) -> list[int]:
    """Forks of the host that have not become anything else, beside its harness."""
    own = Path(f"/proc/{host}/cmdline").read_bytes()
    return [pid for pid in children(host) if Path(f"/proc/{pid}/cmdline").read_bytes() == own and b"census" not in own]
