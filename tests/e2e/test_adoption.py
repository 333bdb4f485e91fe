"""Agents outlive the daemon: killed, shut down or replaced, the next one takes them over (SPEC sections 1, 6 rows 8 and 9, and 12)."""

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import acpmux
from kit.product import Product, pid_said, runs, wait_for


def kill_daemon(product: Product) -> None:
    os.kill(product.json("daemon", "status")["pid"], signal.SIGKILL)
    wait_for(lambda: product.run("daemon", "status").returncode == 1, "the daemon's end")


def new(product: Product, **how: object) -> int:
    product.agent(**how)
    product.ok("new", "-a", "scripted", "-n", "s")
    return product.json("info", "s")["pid"]


def gated(product: Product) -> tuple[Path, list[dict[str, object]]]:
    """A turn that says something, waits at a gate, and says something more."""
    gate = product.folder / "gate"
    os.mkfifo(gate)
    return gate, [
        {"do": "say", "text": "before "},
        {"do": "gate", "path": str(gate)},
        {"do": "say", "text": "after"},
    ]


def begin(product: Product, steps: list[dict[str, object]], prompt_id: str = "p1") -> None:
    product.ok("send", "s", json.dumps(steps), "--no-wait", "--prompt-id", prompt_id)


def reached(gate: Path) -> None:
    wait_for(lambda: Path(f"{gate}.reached").exists(), "the gate")


def open_gate(gate: Path) -> None:
    gate.write_text("")


def prompts(product: Product) -> list[str]:
    lines = map(json.loads, (product.folder / "scripted.record").read_text().splitlines())
    return [
        line["got"]["params"]["prompt"][0]["text"]
        for line in lines
        if line.get("got", {}).get("method") == "session/prompt"
    ]


@pytest.mark.parametrize("how", ["killed", "shut down"])
def test_turn_goes_on_while_the_daemon_is_replaced_and_its_reply_is_whole(product: Product, how: str) -> None:
    pid = new(product)
    gate, steps = gated(product)
    begin(product, steps)
    reached(gate)
    if how == "killed":
        kill_daemon(product)
    else:
        assert "1 agent(s) run on" in product.ok("daemon", "shutdown")
    row = product.json("info", "s")
    assert (row["status"], row["pid"]) == ("running", pid)
    open_gate(gate)
    product.until("s", "ready")
    assert product.ok("last", "s") == "before after\n"
    assert len(prompts(product)) == 1


def test_turn_that_ends_while_no_daemon_runs_is_told_by_the_next(product: Product) -> None:
    new(product)
    gate, steps = gated(product)
    begin(product, steps)
    reached(gate)
    kill_daemon(product)
    open_gate(gate)
    told = product.json("send", "s", json.dumps(steps), "--prompt-id", "p1")  # the same id: its one outcome
    assert (told["reply"], told["stopReason"]) == ("before after", "end_turn")
    assert len(prompts(product)) == 1


def test_agent_that_exits_while_no_daemon_runs_loses_none_of_its_words(product: Product) -> None:
    pid = new(product)
    gate, steps = gated(product)
    begin(product, [*steps, {"do": "exit", "code": 3}])
    reached(gate)
    kill_daemon(product)
    open_gate(gate)
    wait_for(lambda: not runs(pid), "the agent's end")
    row = product.json("info", "s")
    assert row["status"] == "hibernated" and "with code 3" in row["lastError"]
    events = json.dumps(product.json("why", "s")["story"])
    assert "with code 3" in events
    assert "before after" in product.ok("last", "s")


def test_question_that_waits_survives_the_daemon_and_is_answered_once(product: Product) -> None:
    new(product)
    begin(product, [{"do": "ask"}])
    product.until("s", "waiting")
    kill_daemon(product)
    (asked,) = product.json("pending")
    assert asked["name"] == "s" and product.status("s") == "waiting"
    product.ok("allow", "s")
    product.until("s", "ready")
    assert '"optionId": "yes"' in product.ok("last", "s")


def test_retirement_under_way_is_finished_and_the_session_sleeps(product: Product) -> None:
    (product.home / "config.toml").write_text('[idle]\nafter = "never"\ngrace = "3s"\n')
    pid = new(product, ignore_term=True)
    sleeping = product.spawn("hibernate", "s")
    wait_for(lambda: product.status("s") == "hibernating", "the retirement")
    kill_daemon(product)
    sleeping.communicate(timeout=20)
    product.until("s", "hibernated")
    assert not runs(pid)
    assert "it went to sleep" in product.ok("why", "s")


def test_idle_session_sleeps_also_under_the_next_daemon(product: Product) -> None:
    pid = new(product)
    product.ok("set", "s", "--idle-after", "1s")
    kill_daemon(product)
    product.until("s", "hibernated")
    assert not runs(pid)


def test_work_under_an_adopted_agent_still_holds_it(product: Product) -> None:
    new(product)
    work = pid_said(product.steps("s", {"do": "spawn", "command": ["sleep", "300"]}))
    kill_daemon(product)
    assert f"pid {work}" in product.fails("hibernate", "s")
    assert runs(work)
    product.ok("stop", "s")


def test_queue_goes_on_in_order_after_the_turn(product: Product) -> None:
    new(product)
    gate, steps = gated(product)
    begin(product, steps)
    reached(gate)
    product.ok("send", "s", "second", "--no-wait")
    product.ok("send", "s", "third", "--no-wait")
    kill_daemon(product)
    assert product.json("info", "s")["queued"] == 2
    open_gate(gate)
    wait_for(lambda: product.json("info", "s")["queued"] == 0 and product.status("s") == "ready", "the queue")
    assert prompts(product)[1:] == ["second", "third"]


def test_command_that_comes_while_a_daemon_ends_starts_the_next_one(product: Product) -> None:
    (product.home / "logs").mkdir(mode=0o700)
    output = product.home / "logs/daemon.out"
    with open(product.home / "daemon.lock", "w") as lock:  # no socket any more, and the lock not yet let go
        fcntl.flock(lock, fcntl.LOCK_EX)
        command = product.spawn("ls")
        wait_for(lambda: output.exists() and "another daemon runs" in output.read_text(), "the one that finds it taken")
    _, told = command.communicate(timeout=20)
    assert command.returncode == 0, told


def test_three_daemons_later_there_is_still_one_agent_with_one_set_of_servers(product: Product) -> None:
    server = {"command": "sleep", "args": ["1234"]}
    (product.folder / "mcp.json").write_text(json.dumps({"mcpServers": {"nap": server}}))
    product.agent()
    product.ok("new", "-a", "scripted", "-n", "s", "--mcp-config", str(product.folder / "mcp.json"))
    first = {row["pid"] for row in product.json("ps", "s")["processes"]}
    for _ in range(3):
        kill_daemon(product)
        assert {row["pid"] for row in product.json("ps", "s")["processes"]} == first


def test_direct_hosting_ends_the_agent_with_the_daemon(product: Product) -> None:
    product.agent("direct")
    with open(product.home / "config.toml", "a") as file:
        file.write('hosting = "direct"\n')
    product.ok("new", "-a", "direct", "-n", "s")
    pid = product.json("info", "s")["pid"]
    kill_daemon(product)
    wait_for(lambda: not runs(pid), "the agent's end")
    assert product.status("s") == "hibernated"
    assert product.ok("send", "s", "again") == "echo: again\n"


def test_everything_gone_as_after_a_reboot_keeps_what_was_stored_and_tells_what_is_unknown(product: Product) -> None:
    pid = new(product)
    product.ok("send", "s", "kept")
    gate, steps = gated(product)
    begin(product, steps)
    reached(gate)
    host = product.json("info", "s")["hostPid"]
    kill_daemon(product)
    for gone in (host, pid):
        os.kill(gone, signal.SIGKILL)
    assert product.status("s") == "hibernated"
    assert "outcome is unknown" in product.ok("why", "s")
    assert product.ok("send", "s", "again") == "echo: again\n"
    assert "echo: kept" in product.ok("last", "s", "-n", "5")


def test_session_that_was_waking_when_the_daemon_died_is_ended_and_keeps_its_prompt(product: Product) -> None:
    gate = product.folder / "gate"
    os.mkfifo(gate)
    product.agent(initialize=[{"do": "gate", "path": str(gate)}])
    starting = product.spawn("new", "-a", "scripted", "-n", "s", "first")
    reached(gate)
    kill_daemon(product)
    starting.communicate(timeout=20)
    row = product.json("info", "s")
    assert (row["status"], row["queued"]) == ("hibernated", 1)
    assert not (product.home / "hosts").exists() or not list((product.home / "hosts").iterdir())


def test_host_of_a_version_that_can_not_be_adopted_is_ended_by_proof_and_work_beside_it_goes_on(
    product: Product,
) -> None:
    other = product.folder / "other-version"
    shutil.copytree(Path(acpmux.__file__).parent, other / "acpmux")
    frames = other / "acpmux/wire/hostframe.py"
    frames.write_text(re.sub(r"^VERSION = 1$", "VERSION = 2", frames.read_text(), flags=re.MULTILINE))
    product.agent()
    argv = [sys.executable, "-m", "acpmux", "new", "-a", "scripted", "-n", "s"]
    subprocess.run(argv, env=product.env | {"PYTHONPATH": str(other)}, check=True, capture_output=True)
    before = product.json("info", "s")
    work = pid_said(product.steps("s", {"do": "spawn", "command": ["sleep", "1111"]}))
    gate, steps = gated(product)
    begin(product, steps)
    reached(gate)
    kill_daemon(product)

    assert product.status("s") == "hibernated"
    assert not runs(before["pid"]) and not runs(before["hostPid"])
    assert runs(work)
    told = product.run("send", "s", json.dumps(steps), "--prompt-id", "p1", "--json")
    assert json.loads(told.stderr)["error"]["code"] == "outcome_unknown", told
    assert product.ok("send", "s", "hello") == "echo: hello\n"
    product.ok("stop", "s", "--all")


def test_host_whose_socket_was_taken_away_is_adopted_with_all_that_runs_under_it(product: Product) -> None:
    new(product)
    work = pid_said(product.steps("s", {"do": "spawn", "command": ["sleep", "1111"], "session": False}))
    host = product.json("info", "s")["hostPid"]
    next((product.home / "hosts").glob("*/sock")).unlink()
    product.ok("daemon", "shutdown")
    row = product.json("info", "s")  # starts the next daemon
    assert (row["status"], row["hostPid"]) == ("ready", host)
    assert runs(work) and runs(host)
    assert product.ok("send", "s", "hello") == "echo: hello\n"


def test_host_that_stands_still_at_a_daemons_start_goes_on_when_it_goes_on(product: Product) -> None:
    new(product)
    host = product.json("info", "s")["hostPid"]
    os.kill(host, signal.SIGSTOP)
    kill_daemon(product)
    product.ok("send", "s", "hello", "--no-wait", "--prompt-id", "p1")
    assert product.json("info", "s")["hostPid"] == host
    os.kill(host, signal.SIGCONT)
    assert product.ok("send", "s", "hello", "--prompt-id", "p1") == "echo: hello\n"
    assert product.json("info", "s")["hostPid"] == host


@pytest.mark.parametrize("gone", [("daemon.lock",), ("acpmux.sock",), ("daemon.lock", "acpmux.sock")])
def test_daemon_whose_files_were_taken_away_stays_the_only_one_and_is_found(
    product: Product, gone: tuple[str, ...]
) -> None:
    pid = new(product)
    work = pid_said(product.steps("s", {"do": "spawn", "command": ["sleep", "1111"], "session": False}))
    daemon = product.json("daemon", "status")["pid"]
    for name in gone:
        (product.home / name).unlink()
    assert product.run("daemon", "run").returncode == 0  # the home is served
    assert product.json("info", "s")["pid"] == pid
    assert product.json("daemon", "status")["pid"] == daemon
    assert runs(work) and (product.home / "acpmux.sock").exists()


def test_lock_that_is_a_link_is_refused_and_what_it_leads_to_is_left_alone(product: Product) -> None:
    (product.folder / "mine").write_text("precious")
    (product.home / "daemon.lock").symlink_to(product.folder / "mine")
    assert "daemon.lock can't be taken" in product.run("daemon", "run").stderr
    assert (product.folder / "mine").read_text() == "precious"
