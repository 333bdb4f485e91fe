"""Every way a harness ends, on real processes: the rows of the table in docs/hibernation.md (SPEC section 6)."""

import json
import os
import shlex
import signal
import sys
import time

import pytest

from acpmux.client import Connection
from kit.product import SCRIPTED, Product, pid_said, runs, wait_for

SLEEPER = ["sleep", "300"]
DEAF = [sys.executable, "-c", "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(300)"]
ENDINGS = (["stop", "s"], ["close", "s"], ["rm", "s"], ["daemon", "shutdown", "--end-agents"])
# a child of the agent's group whose parent is gone: it is no descendant of anybody there
ORPHAN = [sys.executable, "-c", "import os, time; os.fork() and os._exit(0); time.sleep(300)"]


def new(product: Product, **script: object) -> None:
    product.agent(**script)
    product.ok("new", "-a", "scripted", "-n", "s")


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def mark(product: Product) -> bytes:
    return f"ACPMUX_SESSION_ID={product.json('info', 's')['sessionId']}".encode()


def orphan(product: Product) -> int:
    """The pid of a member of the agent's group that found another parent."""
    group = product.json("info", "s")["pid"]
    product.steps("s", {"do": "spawn", "command": ORPHAN, "session": False})

    def found() -> list[int]:
        rows = product.json("ps", "s")["processes"]
        return [row["pid"] for row in rows if row["pgid"] == group and row["ppid"] != group and row["pid"] != group]

    wait_for(lambda: len(found()) == 1, "the orphan")
    return found()[0]


# ------------------------------------------------------------ rows 1 to 5: a retirement


def test_row_1_idle_and_clear_ends_agent_and_servers_and_the_next_prompt_resumes(product: Product) -> None:
    path = product.folder / "mcp.json"
    server = {"command": sys.executable, "args": ["-m", "acpmux.agents.demo_mcp"]}
    path.write_text(json.dumps({"mcpServers": {"clock": server}}))
    product.agent()
    product.ok("new", "-a", "scripted", "-n", "s", "--mcp-config", str(path))
    there = [row["pid"] for row in product.json("ps", "s")["processes"]]
    product.ok("hibernate", "s")
    assert len(there) == 2 and not any(map(runs, there))
    assert product.ok("send", "s", "again") == "echo: again\n"


@pytest.mark.parametrize("own_session", [True, False])
def test_row_2_child_in_the_same_group_or_in_a_session_of_its_own_refuses(product: Product, own_session: bool) -> None:
    new(product)
    pid = pid_said(product.steps("s", {"do": "spawn", "command": SLEEPER, "session": own_session}))
    assert f"pid {pid}" in product.fails("hibernate", "s")
    assert runs(pid) and product.status("s") == "ready"


@pytest.mark.parametrize("how", ["by the agent", "by a wrapper's background job"])
def test_row_2_stranger_that_was_there_at_birth_is_no_part_of_the_agent(product: Product, how: str) -> None:
    """What an agent starts before it answers `initialize` is part of it only above a recognised server."""
    agent = [sys.executable, SCRIPTED, str(product.folder / "born.json")]
    if how == "by the agent":
        steps = {"start": [{"do": "spawn", "command": SLEEPER, "session": False, "quiet": True}]}
        product.agent("born", **steps)
    else:
        product.agent("born", command=["sh", "-c", f"{' '.join(SLEEPER)} & exec {shlex.join(agent)}"])
        (product.folder / "born.json").write_text("{}")
    product.ok("new", "-a", "born", "-n", "s")
    rows = {row["verdict"]: row["pid"] for row in product.json("ps", "s")["processes"]}
    assert set(rows) == {"harness", "other"}
    assert f"pid {rows['other']}" in product.fails("hibernate", "s")
    assert runs(rows["other"])


def test_row_2_group_member_with_another_parent_refuses(product: Product) -> None:
    new(product)
    pid = orphan(product)
    assert f"pid {pid}" in product.fails("hibernate", "s")
    assert runs(pid)


def test_row_3_agent_whose_first_process_is_a_zombie_refuses(product: Product) -> None:
    """Its main thread has ended and a child holds the group: nobody may be counted without a leader."""
    code = "import os, subprocess, sys, time; subprocess.Popen(['sleep', '300']); os._exit(3)"
    product.agent("dying", command=[sys.executable, "-c", code])
    told = product.fails("new", "-a", "dying", "-n", "d")
    assert "exited at its start" in told
    assert "d" not in product.ok("ls").split()


def test_row_4_session_in_use_is_not_asked_and_its_period_begins_anew(sleepy: Product) -> None:
    new(sleepy)
    with Connection(str(sleepy.home / "acpmux.sock")) as client:
        client.request("_acpmux/attach", {"sessionId": "s"})
        time.sleep(1.5)  # three idle periods
        row = sleepy.json("why", "s")
        assert row["refusals"] == 0 and [hold["kind"] for hold in row["holds"]] == ["client"]
    sleepy.until("s", "hibernated")


# ------------------------------------------------------------ row 6: a person ends it


@pytest.mark.parametrize("ending", ENDINGS, ids=lambda words: " ".join(words))
def test_row_6_everybody_in_the_tree_and_the_group_is_gone_and_what_left_it_lives(
    product: Product, ending: list[str]
) -> None:
    new(product, ignore_term=True)
    leader = product.json("info", "s")["pid"]
    steps = [
        {"do": "spawn", "command": SLEEPER, "session": False},
        {"do": "spawn", "command": DEAF},
        {"do": "spawn", "command": ["sh", "-c", "sleep 300 & sleep 300"]},
    ]
    under = [pid_said(product.steps("s", step)) for step in steps]
    under += [orphan(product), leader]
    wait_for(lambda: len(product.json("ps", "s")["processes"]) >= 7, "the whole tree")
    under += [row["pid"] for row in product.json("ps", "s")["processes"]]
    left = pid_said(product.steps("s", {"do": "detach", "command": SLEEPER}))
    began = time.monotonic()
    product.ok(*ending)
    assert time.monotonic() - began < 10
    assert not [pid for pid in under if runs(pid)]
    assert runs(left)
    kill(left)


def test_row_6_stop_of_a_frozen_agent_ends_it(product: Product) -> None:
    new(product)
    leader = product.json("info", "s")["pid"]
    os.kill(leader, signal.SIGSTOP)
    product.ok("stop", "s")
    assert not runs(leader)


def test_row_6_stop_in_the_middle_of_a_retirement_waits_it_out(product: Product) -> None:
    (product.home / "config.toml").write_text('[idle]\nafter = "never"\ngrace = "20s"\n')
    new(product, ignore_term=True)
    leader = product.json("info", "s")["pid"]
    sleeping = product.spawn("hibernate", "s")
    wait_for(lambda: product.status("s") == "hibernating", "the retirement")
    began = time.monotonic()
    product.ok("stop", "s")
    assert time.monotonic() - began < 5  # the grace is cut to 300 ms
    assert not runs(leader)
    sleeping.communicate(timeout=20)


# ------------------------------------------------------------ rows 7 and 9


def test_row_7_agent_that_exits_on_its_own_is_told_with_its_code_and_its_group_is_cleaned(product: Product) -> None:
    new(product)
    child = pid_said(product.steps("s", {"do": "spawn", "command": DEAF, "session": False}))
    product.fails("send", "s", json.dumps([{"do": "exit", "code": 3}]))
    assert "with code 3" in product.ok("why", "s")
    assert product.status("s") == "hibernated" and not runs(child)
    assert product.ok("send", "s", "again") == "echo: again\n"


def test_row_9_crashed_hosts_agent_is_ended_by_identity_and_nothing_stored_is_lost(product: Product) -> None:
    new(product)
    product.ok("send", "s", "kept")
    row = product.json("info", "s")
    kill(row["hostPid"])
    product.until("s", "hibernated")
    assert not runs(row["pid"])
    assert "echo: kept" in product.ok("last", "s")


def test_row_6_end_of_all_agents_also_ends_what_outlived_an_agent_that_sleeps_or_crashed(product: Product) -> None:
    new(product)
    pid = pid_said(product.steps("s", {"do": "spawn", "command": SLEEPER, "session": True}))
    leader = product.json("info", "s")["pid"]
    kill(leader)
    product.until("s", "hibernated")
    assert runs(pid)
    product.ok("daemon", "shutdown", "--end-agents", "--all")
    wait_for(lambda: not runs(pid), "what was left to end")
