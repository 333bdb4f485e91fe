"""Each form of `census/identity.py`, made by the real program: it is started as configured and must come to show one of its forms."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from acpmux.census.identity import matches, shown
from acpmux.census.launch import resolve
from acpmux.census.table import row_of
from real import install

FILES = install.FILESYSTEM_SERVER
SERVER_PY = "import sys\nfor line in sys.stdin: pass\n"
SERVER_JS = "process.stdin.resume()\n"
STEADY = 5  # looks in a row that show a form
BUDGET_S = 60.0

CONFIGURED = {
    "npx": ["npx", "-y", FILES, "WORK"],
    "npx with a package": ["npx", "-y", "-p", FILES, "mcp-server-filesystem", "WORK"],
    "npx with dashes": ["npx", "--yes", "--package", FILES, "--", "mcp-server-filesystem", "WORK"],
    "npx with options behind": ["npx", "-y", FILES, "WORK", "--port", "3"],
    "npm exec": ["npm", "exec", "-y", "--", FILES, "WORK"],
    "npm x": ["npm", "x", "-y", FILES, "WORK"],
    "uvx": ["uvx", "mcp-server-time"],
    "uvx from": ["uvx", "--from", "mcp-server-time", "mcp-server-time", "--local-timezone", "UTC"],
    "uv tool run": ["uv", "tool", "run", "mcp-server-time"],
    "uv run": ["uv", "run", "--no-project", "--with", "mcp-server-time", "mcp-server-time"],
    "bunx": ["bunx", FILES, "WORK"],
    "bun run": ["bun", "run", "SERVER.js"],
    "deno run": ["deno", "run", "-A", "SERVER.js"],
    "node": ["node", "SERVER.js"],
    "console script by name": ["mcp-server-time"],
    "python module": ["python3", "-m", "mcp_server_time"],
    "script by its first line": ["SCRIPT.sh", "a"],
    "env": ["env", "A=1", "node", "SERVER.js"],
    "env without a variable": ["env", "-u", "B", "A=1", "node", "SERVER.js"],
    "env with words to split": ["env", "-S", "node SERVER.js"],
    "bash": ["bash", "-c", "node SERVER.js"],
    "bash with a variable and exec": ["bash", "-c", "A=1 exec python3 SERVER.py"],
    "bash with a folder": ["bash", "-c", "cd WORK && exec npx -y FILES WORK"],
    "sh": ["sh", "-c", "node SERVER.js"],
    "sh with exec": ["sh", "-c", "exec node SERVER.js"],
    "several commands": ["bash", "-c", "true; node SERVER.js; true"],
}


@pytest.mark.parametrize("name", CONFIGURED)
def test_real_program_comes_to_show_one_of_its_forms(name: str, tmp_path: Path) -> None:
    (tmp_path / "SERVER.py").write_text(SERVER_PY)
    (tmp_path / "SERVER.js").write_text(SERVER_JS)
    (tmp_path / "SCRIPT.sh").write_text("#!/bin/sh\npython3 SERVER.py\ntrue\n")
    (tmp_path / "SCRIPT.sh").chmod(0o755)
    words = [
        word.replace("FILES", FILES)
        .replace("WORK", str(tmp_path))
        .replace("SERVER.", f"{tmp_path}/SERVER.")
        .replace("SCRIPT", f"{tmp_path}/SCRIPT")
        for word in CONFIGURED[name]
    ]
    runtimes = install.ROOT / "runtimes/node_modules/.bin"
    env = os.environ | {
        "PATH": f"{runtimes}:{install.paths().path}",
        "npm_config_cache": str(install.paths().npm_cache),
    }
    forms = shown(words[0], words[1:], lambda command: resolve(command, env["PATH"], str(tmp_path)))
    process = subprocess.Popen(
        words, env=env, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    seen: list[tuple[bytes, ...]] = []
    try:
        until, steady = time.monotonic() + BUDGET_S, 0
        while steady < STEADY:
            row = row_of(process.pid)
            assert row is not None and process.poll() is None, f"it exited; it showed {seen}"
            seen = [*seen, row.argv] if row.argv not in seen else seen
            steady = steady + 1 if matches(row, forms) else 0
            assert time.monotonic() < until, f"none of {seen} is one of {forms}"
            time.sleep(0.3)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(2)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
