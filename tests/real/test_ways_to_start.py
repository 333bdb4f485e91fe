"""However a real agent is started, its own processes are known, and it sleeps with nothing left.

Through its npm launcher, through npx and uv, through a shell script, with another program in its place: each puts other processes between
the one acpmux starts and the MCP servers.
"""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from real import install
from real.agents import AGENTS, environment
from real.conftest import Acpmux
from real.model_servers import ModelServer, openai
from real.test_sleep_and_wake import alive, identity, servers


@dataclass(frozen=True)
class Way:
    """One command line for an agent; `write` puts the files it needs into a folder and returns more environment."""

    profile: str
    command: Callable[[Path], list[str]]
    write: Callable[[Path], Mapping[str, str]] = field(default=lambda folder: {})


def _bin(package: str, name: str) -> str:
    return str(install.ROOT / package / "node_modules/.bin" / name)


def _script(text: str) -> Callable[[Path], Mapping[str, str]]:
    def write(folder: Path) -> Mapping[str, str]:
        path = folder / "start.sh"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return {}

    return write


def _codex_path(folder: Path) -> Mapping[str, str]:
    return {"CODEX_PATH": str(_codex_native())}


def _codex_native() -> Path:
    return next((install.ROOT / "codex/node_modules/@openai").glob("codex*/vendor/*/bin/codex"))


def _own_claude(folder: Path) -> Mapping[str, str]:
    native = next((install.ROOT / "claude/node_modules/@anthropic-ai").glob("claude-agent-sdk-linux-x64/claude"))
    (folder / "my-claude").symlink_to(native)
    return {"CLAUDE_CODE_EXECUTABLE": str(folder / "my-claude")}


def _gemini(folder: Path) -> Mapping[str, str]:
    (folder / ".gemini").mkdir()
    security = {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}}
    (folder / ".gemini/settings.json").write_text(json.dumps({"security": security}))
    return {"HOME": str(folder), "GEMINI_API_KEY": "none", "GOOGLE_GEMINI_BASE_URL": "http://127.0.0.1:9"}


DEMO = [sys.executable, "-P", "-m", "acpmux.agents.demo"]
ZED, CODEX, CLAUDE = "@zed-industries/codex-acp@0.16.0", "@agentclientprotocol/codex-acp@2.6.0", "claude"
WAYS = {
    "zed through its npm launcher": Way("zed-codex", lambda f: ["node", _bin("zed-codex", "codex-acp")]),
    "zed through npx": Way("zed-codex", lambda f: ["npx", "-y", ZED]),
    "codex by its shim": Way("codex", lambda f: [_bin("codex", "codex-acp")]),
    "codex through npx": Way("codex", lambda f: ["npx", "-y", CODEX]),
    "codex with a codex of one's own": Way("codex", lambda f: [_bin("codex", "codex-acp")], _codex_path),
    "claude with a claude of one's own": Way("claude", lambda f: ["node", str(install.paths().claude)], _own_claude),
    "claude through a script": Way(
        "claude", lambda f: [str(f / "start.sh")], lambda f: _script(f"node {install.paths().claude}\ntrue")(f)
    ),
    "claude through a script that becomes it": Way(
        "claude", lambda f: [str(f / "start.sh")], lambda f: _script(f"exec node {install.paths().claude}")(f)
    ),
    "claude from a project": Way("claude", lambda f: ["npx", "--prefix", str(install.ROOT / "claude"), "claude-agent-acp"]),
    "gemini": Way("gemini", lambda f: [_bin("gemini", "gemini"), "--experimental-acp"], _gemini),
    "opencode": Way("opencode", lambda f: [_bin("opencode", "opencode"), "acp"], lambda f: {"HOME": str(f)}),
    "the demo agent through uv run": Way("demo", lambda f: ["uv", "run", "--no-project", *DEMO]),
}  # fmt: skip


@pytest.mark.parametrize("name", WAYS)
def test_its_own_processes_are_known_and_it_sleeps_with_nothing_left(name: str, tmp_path: Path) -> None:
    way = WAYS[name]
    model: ModelServer = openai()
    (tmp_path / "agent").mkdir()
    (tmp_path / "work").mkdir()
    model.start()
    agent = next((agent for agent in AGENTS if agent.profile == way.profile), None)
    own = agent.set_up(tmp_path / "agent", model) if agent else {}
    env = environment({**own, **way.write(tmp_path / "agent")})
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    command = json.dumps(way.command(tmp_path / "agent"))
    (home / "config.toml").write_text(
        f'[idle]\nafter = "never"\n[agents.a]\ncommand = {command}\nprofile = "{way.profile}"\n'
    )
    acpmux = Acpmux(env, home)
    try:
        config = str(servers(tmp_path, tmp_path / "work"))
        acpmux("new", "-a", "a", "-n", "s", "--cwd", str(tmp_path / "work"), "--mcp-config", config)
        acpmux.wait_for_servers("s", {"files", "time"})
        rows = acpmux.json("ps", "s")["processes"]
        assert {row["verdict"] for row in rows} == {"harness", "server", "under-server"}, acpmux("ps", "s")
        there = alive(rows)
        acpmux("hibernate", "s")
        assert not [pid for pid, born in there.items() if identity(pid) == born]
    finally:
        model.stop()
        acpmux("daemon", "shutdown", "--end-agents", "--all")
