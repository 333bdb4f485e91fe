"""Which real MCP servers the census knows under real agents, and why not: `python bench/census_servers.py [AGENT ...]`.

Each agent is started twice through the installed command: once with every server in its own configuration, where only
an exact command line can be evidence, and once with all of them given by acpmux, whose marker is. Prints one table.
`ps` after the servers have settled says what each process was taken for.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests")]

from real import agents, install  # noqa: E402
from real.conftest import Acpmux  # noqa: E402

TOOLS = ("bun", "deno", "opencode-ai", "@google/gemini-cli", install.FILESYSTEM_SERVER)
PYTHON_TOOLS = ("pipx", "setproctitle", *install.PYTHON_PACKAGES)
SETTLE_S = 45.0  # gemini with some twenty servers on two cores
QUIET_S = 6.0

FETCHING = (
    "UV_",
    "PIP_",
    "SSL_CERT",
    "REQUESTS_CA",
    "NODE_EXTRA",
    "npm_config_",
    "HTTP",
    "http",
    "NO_PROXY",
    "no_proxy",
)

Servers = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Harness:
    """`configure` writes an agent's own configuration into a home and returns its environment."""

    name: str
    profile: str
    command: Callable[[], list[str]]
    configure: Callable[[Path, Servers], Mapping[str, str]]


def tools_folder() -> Path:
    return install.ROOT / "census"


def prepare() -> None:
    """Installs what the servers are run with, once."""
    install.main()
    install.step("census", " ".join((*TOOLS, *PYTHON_TOOLS)), _install_tools)


def _install_tools() -> None:
    install.npm("census", list(TOOLS))
    subprocess.run([install.paths().python_bin / "pip", "install", "-q", *PYTHON_TOOLS], check=True)


# ------------------------------------------------------------ the servers


def servers(folder: Path) -> Servers:
    """The configurations people write, by name. What each needs from the network it has fetched before."""
    work = folder / "work"
    work.mkdir()
    script = _script(folder / "server.py", "#!/usr/bin/env python3\n" + MINI)
    wrapper = _script(folder / "wrap.sh", f'#!/bin/sh\npython3 {script} "$@"\ntrue\n')
    becoming = _script(folder / "become.sh", f'#!/bin/sh\nexec python3 {script} "$@"\n')
    titled = _script(folder / "titled.py", "import setproctitle; setproctitle.setproctitle('mcp: time')\n" + MINI)
    javascript = _script(folder / "server.js", JS)
    shim = tools_folder() / "node_modules/.bin/mcp-server-filesystem"
    files, python = install.FILESYSTEM_SERVER, str(install.paths().python_bin / "python3")
    lines: dict[str, str | list[str]] = {
        "npx": f"npx -y {files} {work}",
        "npx-package": f"npx -y -p {files} mcp-server-filesystem {work}",
        "npm-exec": f"npm exec -y -- {files} {work}",
        "npm-x": f"npm x -y {files} {work}",
        "shim-path": f"{shim} {work}",
        "shim-name": f"mcp-server-filesystem {work}",
        "node": f"node {javascript}",
        "node-flag": f"node --no-warnings {javascript}",
        "uvx": "uvx mcp-server-time",
        "uvx-from": "uvx --from mcp-server-time mcp-server-time --local-timezone UTC",
        "uv-tool-run": "uv tool run mcp-server-time",
        "uv-run": "uv run --no-project --with mcp-server-time mcp-server-time",
        "uv-run-python": f"uv run --no-project python {script}",
        "pipx-run": "pipx run mcp-server-time",
        "bunx": f"bunx {files} {work}",
        "bun-run": f"bun run {javascript}",
        "deno-run": f"deno run -A {javascript}",
        "python-m": f"{python} -m mcp_server_time",
        "python-path": f"python3 {script} one two",
        "console-path": f"{install.paths().python_bin}/mcp-server-time",
        "console-name": "mcp-server-time --local-timezone UTC",
        "env": f"env FOO=1 python3 {script} env",
        "bash-c": ["bash", "-c", f"python3 {script} bash"],
        "bash-lc-exec": ["bash", "-lc", f"FOO=1 exec python3 {script} lc"],
        "bash-cd": ["bash", "-c", f"cd {work} && exec python3 {script} cd"],
        "sh-c": ["sh", "-c", f"python3 {script} sh"],
        "bash-several": ["bash", "-c", f"true; python3 {script} several; true"],
        "wrapper": f"{wrapper} w",
        "wrapper-sh": f"sh {wrapper} v",
        "wrapper-exec": f"{becoming} x",
        "script": f"{script} s",
        "blanks": ["python3", str(script), "two words", ""],
        "title": f"{python} {titled}",
    }
    env = {
        "npm_config_cache": str(install.paths().npm_cache),
        "npm_config_prefer_offline": "true",
        "PATH": _path(),
        "HOME": os.path.expanduser("~"),
        # an agent may hand its servers next to nothing; these reach what they are installed from
        **{key: value for key, value in os.environ.items() if key.startswith(FETCHING)},
    }
    told: Servers = {}
    for name, line in lines.items():
        words = line.split() if isinstance(line, str) else line
        if str(work) in words:  # a folder of its own for each: two servers with one command line would be one
            (work / name).mkdir()
            words = [str(work / name) if word == str(work) else word for word in words]
        told[name] = {"command": words[0], "args": words[1:], "env": env}
    return told


def _path() -> str:
    return f"{tools_folder()}/node_modules/.bin:{install.paths().path}"


def _script(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


MINI = """
import json, sys
for line in sys.stdin:
    told = json.loads(line)
    if told.get("method") == "initialize":
        result = {"protocolVersion": told["params"]["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "mini", "version": "1"}}
    elif told.get("method") == "tools/list":
        result = {"tools": []}
    elif "id" in told:
        result = {}
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": told["id"], "result": result}), flush=True)
"""
JS = """
import("node:readline").then(({ createInterface }) => createInterface({ input: process.stdin }).on("line", (line) => {
  const told = JSON.parse(line);
  if (told.id === undefined) return;
  const result = told.method === "initialize"
    ? { protocolVersion: told.params.protocolVersion, capabilities: { tools: {} }, serverInfo: { name: "mini", version: "1" } }
    : told.method === "tools/list" ? { tools: [] } : {};
  console.log(JSON.stringify({ jsonrpc: "2.0", id: told.id, result }));
}));
"""


# ------------------------------------------------------------ the agents' own configurations


def _claude(home: Path, named: Servers) -> Mapping[str, str]:
    env = agents.AGENTS[2].set_up(home, _NoModel())
    agents.name_claude_servers(env, named)
    return env


def _codex(home: Path, named: Servers) -> Mapping[str, str]:
    env = agents.AGENTS[0].set_up(home, _NoModel())
    agents.name_codex_servers(env, named)
    return env


def _gemini(home: Path, named: Servers) -> Mapping[str, str]:
    (home / ".gemini").mkdir()
    # in a folder it does not trust, it starts no servers at all
    security = {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}}
    told = {"mcpServers": named, "security": security}
    (home / ".gemini/settings.json").write_text(json.dumps(told))
    return {"HOME": str(home), "GEMINI_API_KEY": "none", "GOOGLE_GEMINI_BASE_URL": "http://127.0.0.1:9"}


def _opencode(home: Path, named: Servers) -> Mapping[str, str]:
    told = {
        name: {"type": "local", "command": [s["command"], *s["args"]], "environment": s["env"], "enabled": True}
        for name, s in named.items()
    }
    (home / ".config/opencode").mkdir(parents=True)
    (home / ".config/opencode/opencode.json").write_text(json.dumps({"mcp": told}))
    return {"HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config")}


class _NoModel:
    """Nothing is prompted here."""

    url = "http://127.0.0.1:9"


def _tool(name: str, *args: str) -> list[str]:
    return [str(tools_folder() / "node_modules/.bin" / name), *args]


HARNESSES = (
    Harness("zed-codex", "zed-codex", lambda: list(agents.AGENTS[0].command()), _codex),
    Harness("codex", "codex", lambda: list(agents.AGENTS[1].command()), _codex),
    Harness("claude", "claude", lambda: list(agents.AGENTS[2].command()), _claude),
    Harness("gemini", "gemini", lambda: ["node", *_tool("gemini", "--experimental-acp")], _gemini),
    Harness("opencode", "opencode", lambda: _tool("opencode", "acp"), _opencode),
)


# ------------------------------------------------------------ a run


def run(harness: Harness, given: bool) -> dict[str, str]:
    """What became of each server: known, or how it shows instead."""
    with tempfile.TemporaryDirectory(prefix="acpmux-census-") as name:
        folder = Path(name)
        named = servers(folder)
        (folder / "agent").mkdir()
        env = agents.environment(harness.configure(folder / "agent", {} if given else named)) | {"PATH": _path()}
        home = folder / "home"
        home.mkdir(mode=0o700)
        command = json.dumps(harness.command())
        (home / "config.toml").write_text(
            f'[idle]\nafter = "never"\n[agents.a]\ncommand = {command}\nprofile = "{harness.profile}"\n'
        )
        (folder / "mcp.json").write_text(json.dumps({"mcpServers": named if given else {}}))
        acpmux = Acpmux(env, home)
        try:
            more = ["--mcp-config", str(folder / "mcp.json")] if given else []
            acpmux("new", "-a", "a", "-n", "s", "--cwd", str(folder / "work"), *more)
            return verdicts(settled(acpmux), named, folder)
        finally:
            subprocess.run(
                [str(Path(sys.executable).parent / "acpmux"), "daemon", "shutdown", "--end-agents", "--all"],
                env=acpmux.env,
                capture_output=True,
                check=False,
            )


def settled(acpmux: Acpmux) -> list[dict[str, Any]]:
    """The processes once they have not changed for a while."""
    until, quiet, last = time.monotonic() + SETTLE_S, time.monotonic() + QUIET_S, set[int]()
    while True:
        told = acpmux.json("ps", "s")
        rows = told["processes"]
        pids = {row["pid"] for row in rows}
        if pids != last or not told["whole"]:
            last, quiet = pids, time.monotonic() + QUIET_S
        if time.monotonic() > min(until, quiet):
            return rows
        time.sleep(0.5)


def verdicts(rows: list[dict[str, Any]], named: Servers, folder: Path) -> dict[str, str]:
    known = {row["server"] for row in rows if row["verdict"] == "server"}
    found = {name: "known" if name in known else "not known" for name in named}
    others = [row for row in rows if row["verdict"] == "other"]
    roots = [row for row in others if row["ppid"] not in {other["pid"] for other in others}]
    found["(somebody else)"] = "; ".join(shown_as(row, folder) for row in roots) or "nobody"
    found["(the agent itself)"] = str(sum(row["verdict"] == "harness" for row in rows))
    return found


def shown_as(row: dict[str, Any], folder: Path) -> str:
    text = " ".join(word for word in row["argv"] if word)
    return text.replace(str(folder), "DIR").replace(str(install.ROOT), "REAL")[:90]


def main() -> int:
    prepare()
    wanted = sys.argv[1:] or [harness.name for harness in HARNESSES]
    columns: dict[str, dict[str, str]] = {}
    for harness in HARNESSES:
        if harness.name in wanted:
            for given in (False, True):
                columns[f"{harness.name} {'given' if given else 'own'}"] = run(harness, given)
                print(f"{harness.name} {'given' if given else 'own'} done", file=sys.stderr, flush=True)
    names = list(next(iter(columns.values())))
    print("| server | " + " | ".join(columns) + " |\n|" + " --- |" * (len(columns) + 1))
    for name in names:
        if not name.startswith("("):
            print(f"| {name} | " + " | ".join(told[name] for told in columns.values()) + " |")
    for what, told in columns.items():
        print(f"{what}: {told['(the agent itself)']} processes of its own; not recognised: {told['(somebody else)']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
