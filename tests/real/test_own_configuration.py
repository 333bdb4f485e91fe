"""Servers that only the agent's own configuration names: known by their exact command lines, and by nothing that looks like them."""

from pathlib import Path
from typing import Any

from real import install
from real.agents import RealAgent
from real.conftest import Acpmux
from real.model_servers import ModelServer
from real.test_sleep_and_wake import alive, identity, processes

SERVER = """
import json, sys
for line in sys.stdin:
    told = json.loads(line)
    if "id" not in told: continue
    result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "mini", "version": "1"}}
    if told["method"] == "tools/list": result = {"tools": [{"name": "nothing", "inputSchema": {"type": "object"}}]}
    print(json.dumps({"jsonrpc": "2.0", "id": told["id"], "result": result}), flush=True)
"""


def named(tmp_path: Path, work: Path) -> dict[str, dict[str, Any]]:
    script = tmp_path / "mini.py"
    script.write_text(SERVER)
    offline = {"npm_config_cache": str(install.paths().npm_cache), "npm_config_offline": "true"}
    return {
        "files": {"command": "npx", "args": ["-y", install.FILESYSTEM_SERVER, str(work)], "env": offline},
        "mini": {"command": "python3", "args": [str(script)], "env": {}},
    }


def start(acpmux: Acpmux, agent: RealAgent, tmp_path: Path) -> Path:
    work = tmp_path / "work"
    work.mkdir()
    agent.name_servers(acpmux.agent_env, named(tmp_path, work))
    acpmux("new", "-a", agent.name, "-n", "s", "--cwd", str(work), "--policy", "approve-all")
    acpmux.request("session/set_mode", sessionId="s", modeId=agent.free_mode)
    assert "hello" in acpmux("send", "s", "hello")
    acpmux.wait_for_servers("s", {"files"})
    return tmp_path / "mini.py"


def test_session_sleeps_with_the_servers_of_its_own_configuration_and_they_come_back(
    acpmux: Acpmux, agent: RealAgent, model: ModelServer, tmp_path: Path
) -> None:
    start(acpmux, agent, tmp_path)
    shown = processes(acpmux)
    there = alive(shown)
    assert {row["server"] for row in shown if row["verdict"] == "server"} == {"files", "mini"}
    acpmux.until("s", "hibernated")
    assert not [pid for pid, born in there.items() if identity(pid) == born]
    assert "again" in acpmux("send", "s", "again")
    acpmux.wait_for_servers("s", {"files"})


def test_servers_own_command_run_by_the_agent_as_a_tool_is_somebody_else(
    acpmux: Acpmux, agent: RealAgent, model: ModelServer, tmp_path: Path
) -> None:
    script = start(acpmux, agent, tmp_path)
    servers = {row["pid"] for row in processes(acpmux)}
    verb = "BG" if agent.name == "claude" else "RUN"
    fifo = tmp_path / "work/hold"
    acpmux("send", "s", f"{verb}: mkfifo {fifo}; exec python3 {script} <> {fifo}")
    tools = [row for row in processes(acpmux) if row["pid"] not in servers and str(script) in row["argv"]]
    assert [row["verdict"] for row in tools] == ["other"], acpmux("ps", "s")
    told = acpmux("hibernate", "s", "--json", code=1)
    assert identity(tools[0]["pid"]) is not None, told
