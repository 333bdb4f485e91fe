"""The installed command with a home of its own, and scripted agents in its config."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kit.scripted_agent import Script

COMMAND = str(Path(sys.executable).parent / "acpmux")
SCRIPTED = str(Path(__file__).parent / "scripted_agent.py")
COMMAND_BUDGET_S = 60.0
WAIT_BUDGET_S = 20.0


class Product:
    """`run` gives a finished command, `ok` its output when it succeeded, `json` its value."""

    def __init__(self, folder: Path, idle: str = "never", config: str = "") -> None:
        self.folder = folder
        self.home = folder / "acpmux-home"
        self.home.mkdir(mode=0o700, exist_ok=True)
        self.env = dict(os.environ) | {"ACPMUX_HOME": str(self.home)}
        (self.home / "config.toml").write_text(f'[idle]\nafter = "{idle}"\n{config}')

    def agent(
        self,
        name: str = "scripted",
        command: Sequence[str] | None = None,
        profile: str = "",
        config: str = "",
        **script: Any,
    ) -> Path:
        """Adds an agent that follows this script; `config` are more lines of it. Returns the file its record goes to."""
        record = self.folder / f"{name}.record"
        told: Script = {"record": str(record), **script}  # type: ignore[typeddict-item]
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(told))
        line = json.dumps(list(command) if command is not None else [sys.executable, SCRIPTED, str(path)])
        with open(self.home / "config.toml", "a") as file:
            file.write(f"[agents.{name}]\ncommand = {line}\n" + (f'profile = "{profile}"\n' if profile else ""))
            file.write(config)
        return record

    def run(self, *args: str, stdin: str | None = None) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [COMMAND, *args], env=self.env, input=stdin or "", capture_output=True, text=True, timeout=COMMAND_BUDGET_S
        )

    def ok(self, *args: str) -> str:
        done = self.run(*args)
        assert done.returncode == 0, f"acpmux {' '.join(args)} gave {done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout

    def json(self, *args: str) -> Any:
        return json.loads(self.ok(*args, "--json"))

    def fails(self, *args: str, code: int = 1) -> str:
        done = self.run(*args)
        assert done.returncode == code, f"acpmux {' '.join(args)} gave {done.returncode}: {done.stdout}{done.stderr}"
        return done.stderr

    def steps(self, name: str, *steps: dict[str, Any], **options: Any) -> str:
        """Prompts a scripted agent with steps."""
        return self.ok("send", name, json.dumps(list(steps)))

    def spawn(self, *args: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [COMMAND, *args], env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )  # fmt: skip

    def status(self, name: str) -> str:
        return self.json("info", name)["status"]

    def until(self, name: str, status: str) -> None:
        wait_for(lambda: self.status(name) == status, f"{name} to be {status}")

    def kept_ready(self, count: int = 1) -> list[int]:
        """Waits for so many hosts that are kept ready. Returns their pids."""
        self.ok("daemon", "start")
        wait_for(lambda: len(self.json("daemon", "status")["pool"]) == count, f"{count} hosts kept ready")
        return [row["hostPid"] for row in self.json("daemon", "status")["pool"]]

    def log(self) -> str:
        path = self.home / "logs/daemon.log"
        return path.read_text() if path.exists() else ""

    def end(self) -> None:
        if (self.home / "acpmux.sock").exists():
            self.run("daemon", "shutdown", "--end-agents", "--all")


def wait_for(condition: Any, what: str, budget_s: float = WAIT_BUDGET_S) -> None:
    deadline = time.monotonic() + budget_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {budget_s:g} s for {what}"
        time.sleep(0.02)


def pid_said(text: str) -> int:
    """The pid a scripted step said."""
    return int(text.split("pid ")[1].split()[0])


def runs(pid: int) -> bool:
    try:
        data = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return data[data.rindex(b")") + 2 :].split()[0] != b"Z"
