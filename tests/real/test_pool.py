"""Real agents started ahead of their sessions: the folder, the servers and the mode come with the session request."""

import time
from pathlib import Path

import pytest

from acpmux.agents import profiles
from real.agents import AGENTS, RealAgent
from real.conftest import Acpmux
from real.model_servers import ModelServer
from real.test_own_configuration import named
from real.test_sleep_and_wake import alive, answers, free_port, identity, processes


def kept_ready(acpmux: Acpmux) -> list[int]:
    """Waits for the hosts that are kept ready. Returns their pids."""
    until = time.monotonic() + 60
    while not (ready := acpmux.json("daemon", "status")["pool"]):
        assert time.monotonic() < until, (acpmux.home / "logs/daemon.log").read_text()
        time.sleep(0.1)
    return [row["hostPid"] for row in ready]


@pytest.mark.parametrize("agent", [a for a in AGENTS if profiles.find(a.profile).poolable], ids=lambda a: a.name)
def test_session_and_its_wake_take_agents_that_are_ready_and_both_sleep(
    acpmux: Acpmux, agent: RealAgent, model: ModelServer, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    with open(acpmux.home / "config.toml", "a") as file:
        file.write("pool = 1\n")
    acpmux("daemon", "start")
    ready = kept_ready(acpmux)
    agent.name_servers(acpmux.agent_env, named(tmp_path, work))  # read when the session begins, not when the agent does
    began = time.monotonic()
    acpmux("new", "-a", agent.name, "-n", "s", "--cwd", str(work), "--policy", "approve-all")
    print(f"{agent.name}: new with one that is ready {time.monotonic() - began:.2f} s")
    assert [acpmux.json("info", "s")["hostPid"]] == ready
    acpmux.request("session/set_mode", sessionId="s", modeId=agent.mode)
    assert "hello" in acpmux("send", "s", "hello one")
    before = model.turn_of("hello one")
    acpmux.wait_for_servers("s", {"files"})
    there = alive(processes(acpmux))
    acpmux.until("s", "hibernated")
    assert [pid for pid, born in there.items() if identity(pid) == born] == []

    ready = kept_ready(acpmux)
    began = time.monotonic()
    assert "hello" in acpmux("send", "s", "hello two")
    print(f"{agent.name}: prompt to reply through a wake with one that is ready {time.monotonic() - began:.2f} s")
    assert [acpmux.json("info", "s")["hostPid"]] == ready
    after = model.turn_of("hello two")
    assert "hello one" in model.text(after)
    assert str(work) in model.text(before) + str(before) and str(work) in model.text(after) + str(after)
    assert model.mode(after) == agent.mode_told == model.mode(before)

    acpmux.request("session/set_mode", sessionId="s", modeId=agent.free_mode)
    port = free_port()
    acpmux("send", "s", agent.dev_server(port))
    acpmux("hibernate", "s", code=1)
    assert answers(port)
