"""What the real suite stands on: the installed agents, and a daemon of its own with the installed `acpmux` command."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from real import install
from real.agents import AGENTS, RealAgent, environment
from real.model_servers import ModelServer

ACPMUX = str(Path(sys.executable).parent / "acpmux")
COMMAND_BUDGET_S = 120.0  # a cold agent with two servers starts in ten seconds; a loaded machine takes its time


class Acpmux:
    """The installed command with a home of its own."""

    def __init__(self, env: Mapping[str, str], home: Path) -> None:
        self.env = dict(env) | {"ACPMUX_HOME": str(home)}
        self.home = home
        self.agent_env: Mapping[str, str] = {}

    def __call__(self, *args: str, code: int = 0) -> str:
        done = subprocess.run([ACPMUX, *args], env=self.env, capture_output=True, text=True, timeout=COMMAND_BUDGET_S)
        assert done.returncode == code, f"acpmux {' '.join(args)} gave {done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout

    def json(self, *args: str) -> Any:
        return json.loads(self(*args, "--json"))

    def request(self, method: str, **params: Any) -> Any:
        """One request over the wire, for what has no command yet."""
        from acpmux.client import Connection

        with Connection(str(self.home / "acpmux.sock")) as connection:
            return connection.request(method, params, COMMAND_BUDGET_S)

    def wait_for_servers(self, name: str, wanted: set[str], budget_s: float = 60.0) -> None:
        """Waits until these servers run and nobody is there who is neither the agent's nor a server's."""
        until = time.monotonic() + budget_s
        while time.monotonic() < until:
            rows = self.json("ps", name)["processes"]
            there = {row["server"] for row in rows if row["verdict"] == "under-server" or row["server"] == "time"}
            if there >= wanted and not [row for row in rows if row["verdict"] == "other"]:
                return
            time.sleep(0.2)
        raise AssertionError(f"{wanted} were not all there: {self('ps', name)}")

    def until(self, name: str, status: str, budget_s: float = 60.0) -> float:
        """Waits for a status and returns how many seconds that took."""
        began = time.monotonic()
        while time.monotonic() < began + budget_s:
            if self.json("info", name)["status"] == status:
                return time.monotonic() - began
            time.sleep(0.1)
        raise AssertionError(f"{name} did not come to {status}: {self('why', name)}")


@pytest.fixture(scope="session", autouse=True)
def installed() -> None:
    install.main()


@pytest.fixture(params=AGENTS, ids=lambda agent: agent.name)
def agent(request: pytest.FixtureRequest) -> RealAgent:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def model(agent: RealAgent) -> Iterator[ModelServer]:
    server = agent.model()
    server.start()
    yield server
    server.stop()


@pytest.fixture
def acpmux(agent: RealAgent, model: ModelServer, tmp_path: Path) -> Iterator[Acpmux]:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(
        f'[idle]\nafter = "{IDLE_S:g}s"\n[agents.{agent.name}]\ncommand = {json.dumps(list(agent.command()))}\n'
        f'profile = "{agent.profile}"\n'
    )
    own = agent.set_up(tmp_path, model)
    command = Acpmux(environment(own), home)
    command.agent_env = own
    yield command
    command("daemon", "shutdown", "--end-agents", "--all")


IDLE_S = 3.0
