"""The product's line on real agents: talk, leave, sleep with nothing left, come back, and never end a dev server."""

import json
import os
import socket
import time
import urllib.request
from pathlib import Path
from typing import Any

from acpmux.rules.idle import OWN_TURN_QUIET_S
from real import install
from real.agents import RealAgent
from real.conftest import IDLE_S, Acpmux
from real.model_servers import ModelServer

PERIODS = 5  # a dev server must live through so many idle periods


def servers(tmp_path: Path, work: Path) -> Path:
    """One server through npx, one pip script; npx stays off the network, its cache is warm."""
    offline = {"npm_config_cache": str(install.paths().npm_cache), "npm_config_offline": "true"}
    told = {
        "files": {"command": "npx", "args": ["-y", install.FILESYSTEM_SERVER, str(work)], "env": offline},
        "time": {"command": str(install.paths().python_bin / "mcp-server-time"), "args": []},
    }
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": told}))
    return path


def start(acpmux: Acpmux, agent: RealAgent, tmp_path: Path, mode: str) -> None:
    work = tmp_path / "work"
    work.mkdir()
    config = servers(tmp_path, work)
    acpmux(
        "new", "-a", agent.name, "-n", "s", "--cwd", str(work), "--mcp-config", str(config), "--policy", "approve-all"
    )  # fmt: skip
    acpmux.request("session/set_mode", sessionId="s", modeId=mode)


def processes(acpmux: Acpmux) -> list[dict[str, Any]]:
    return acpmux.json("ps", "s")["processes"]


def identity(pid: int) -> str | None:
    """The start time of a process, None when there is none: a pid alone proves nothing."""
    try:
        data = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = data[data.rindex(b")") + 2 :].split()
    return None if fields[0] == b"Z" else fields[19].decode()


def alive(rows: list[dict[str, Any]]) -> dict[int, str]:
    """The start times by pid of those of these rows that run; one may have ended since it was listed."""
    return {row["pid"]: born for row in rows if (born := identity(row["pid"])) is not None}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5) as reply:
            return reply.status == 200
    except OSError:
        return False


def test_session_sleeps_with_nothing_left_and_wakes_into_the_same_conversation(
    acpmux: Acpmux, agent: RealAgent, model: ModelServer, tmp_path: Path
) -> None:
    start(acpmux, agent, tmp_path, agent.mode)
    assert "hello one" in acpmux("send", "s", "hello one")
    assert "hello two" in acpmux("send", "s", "hello two")
    before = model.turn_of("hello two")
    assert model.mode(before) == agent.mode_told
    assert any("read_text_file" in name for name in model.tools(before))
    assert any("get_current_time" in name for name in model.tools(before))
    there = alive(processes(acpmux))
    assert len(there) >= 5

    acpmux.until("s", "hibernated")
    assert [pid for pid, born in there.items() if identity(pid) == born] == []
    assert processes(acpmux) == []

    began = time.monotonic()
    assert "hello three" in acpmux("send", "s", "hello three")
    print(f"{agent.name}: prompt to reply through a wake {time.monotonic() - began:.2f} s")
    after = model.turn_of("hello three")
    assert "hello one" in model.text(after) and "hello two" in model.text(after)
    assert model.mode(after) == agent.mode_told
    assert model.tools(after) == model.tools(before)
    assert acpmux.json("info", "s")["mode"] == agent.mode


def test_mode_set_after_the_last_prompt_holds_after_a_wake(
    acpmux: Acpmux, agent: RealAgent, model: ModelServer, tmp_path: Path
) -> None:
    """Claude comes back in the mode of its last prompt, the others in their own default."""
    start(acpmux, agent, tmp_path, agent.free_mode)
    acpmux("send", "s", "hello one")
    acpmux.request("session/set_mode", sessionId="s", modeId=agent.mode)
    acpmux.until("s", "hibernated")
    acpmux("send", "s", "hello two")
    assert model.mode(model.turn_of("hello two")) == agent.mode_told


def test_dev_server_the_agent_started_keeps_it_awake_until_it_ends(
    acpmux: Acpmux, agent: RealAgent, model: ModelServer, tmp_path: Path
) -> None:
    start(acpmux, agent, tmp_path, agent.free_mode)
    port = free_port()
    acpmux("send", "s", agent.dev_server(port))
    deadline = time.monotonic() + 20
    while not answers(port) and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(PERIODS * IDLE_S)

    assert answers(port)
    told = acpmux.json("why", "s")
    assert told["status"] == "ready" and told["refusals"] >= 1
    held = [hold for hold in told["holds"] if hold["kind"] == "census"]
    assert held and "http.server" in " ".join(hold["command"] for hold in held)
    pids = [row["pid"] for row in processes(acpmux) if row["verdict"] == "other" and "http.server" in row["argv"]]
    assert pids, processes(acpmux)
    refused = acpmux("hibernate", "s", code=1)
    assert refused == ""

    ended = time.monotonic()
    for pid in pids:
        os.kill(pid, 15)
    acpmux.until("s", "hibernated")
    # one full period after the end, or after what the agent had to say about it: 10 s of quiet end its own turn
    assert IDLE_S <= time.monotonic() - ended <= OWN_TURN_QUIET_S + IDLE_S + 5
    assert not answers(port)
