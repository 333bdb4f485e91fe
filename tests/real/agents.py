"""The three real agents of the suite: how each is set up, and how each is told to start a dev server that outlives its turn."""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from real import install, model_servers
from real.model_servers import ModelServer


@dataclass(frozen=True, slots=True)
class RealAgent:
    """`mode` is one that is narrower than what the agent comes back with; `dev_server` phrases the prompt for a port."""

    name: str
    profile: str
    model: Callable[[], ModelServer]
    command: Callable[[], tuple[str, ...]]
    set_up: Callable[[Path, ModelServer], Mapping[str, str]]
    dev_server: Callable[[int], str]
    mode: str
    free_mode: str
    mode_told: str  # what `ModelServer.mode` reads while `mode` holds
    name_servers: Callable[[Mapping[str, str], Mapping[str, dict[str, Any]]], None]  # into its own configuration


def _codex_home(folder: Path, model: ModelServer) -> Mapping[str, str]:
    home = folder / "codex-home"
    home.mkdir()
    (home / "config.toml").write_text(
        'model = "scripted"\nmodel_provider = "scripted"\napproval_policy = "never"\nsandbox_mode = "danger-full-access"\n'
        f'[model_providers.scripted]\nname = "scripted"\nbase_url = "{model.url}/v1"\nwire_api = "responses"\n'
        'env_key = "SCRIPTED_KEY"\nrequest_max_retries = 0\nstream_max_retries = 0\n'
    )
    return {"CODEX_HOME": str(home), "SCRIPTED_KEY": "none"}


def _claude_home(folder: Path, model: ModelServer) -> Mapping[str, str]:
    home = folder / "claude-home"
    home.mkdir()
    (home / "settings.json").write_text(json.dumps({"permissions": {"allow": ["Bash"]}}))
    return {
        "CLAUDE_CONFIG_DIR": str(home),
        "ANTHROPIC_BASE_URL": model.url,
        "ANTHROPIC_API_KEY": "none",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_ENABLE_PROMPT_SUGGESTION": "false",  # a request of its own after a turn
        "ENABLE_TOOL_SEARCH": "false",  # the tools of servers are then named in every request
    }


def name_codex_servers(env: Mapping[str, str], servers: Mapping[str, dict[str, Any]]) -> None:
    with open(Path(env["CODEX_HOME"]) / "config.toml", "a") as file:
        for name, server in servers.items():
            file.write(f"[mcp_servers.{name}]\nstartup_timeout_sec = 60\ncommand = {json.dumps(server['command'])}\n")
            file.write(f"args = {json.dumps(server['args'])}\n[mcp_servers.{name}.env]\n")
            file.writelines(f"{key} = {json.dumps(value)}\n" for key, value in server.get("env", {}).items())


def name_claude_servers(env: Mapping[str, str], servers: Mapping[str, dict[str, Any]]) -> None:
    (Path(env["CLAUDE_CONFIG_DIR"]) / ".claude.json").write_text(json.dumps({"mcpServers": servers}))


def _server_command(port: int) -> str:
    return f"python3 -m http.server {port} --bind 127.0.0.1"


AGENTS = (
    RealAgent(
        "zed-codex",
        "zed-codex",
        model_servers.openai,
        lambda: (str(install.paths().zed_codex),),
        _codex_home,
        lambda port: f"RUN: {_server_command(port)}",
        mode="read-only",
        free_mode="full-access",
        mode_told="read-only",
        name_servers=name_codex_servers,
    ),
    RealAgent(
        "codex",
        "codex",
        model_servers.openai,
        lambda: ("node", str(install.ROOT / "codex/node_modules/.bin/codex-acp")),
        _codex_home,
        lambda port: f"RUN: {_server_command(port)}",
        mode="read-only",
        free_mode="agent-full-access",
        mode_told="read-only",
        name_servers=name_codex_servers,
    ),
    RealAgent(
        "claude",
        "claude",
        model_servers.anthropic,
        lambda: ("node", str(install.paths().claude)),
        _claude_home,
        lambda port: f"BG: {_server_command(port)}",
        mode="plan",
        free_mode="default",
        mode_told="plan",
        name_servers=name_claude_servers,
    ),
)


def environment(agent_env: Mapping[str, str]) -> dict[str, str]:
    """The daemon's environment for these tests: Node 22 and the warm caches first, and no sandbox mark of the machine's own."""
    paths = install.paths()
    env = {key: value for key, value in os.environ.items() if key != "IS_SANDBOX"}
    return env | {"PATH": paths.path, "npm_config_cache": str(paths.npm_cache)} | dict(agent_env)
