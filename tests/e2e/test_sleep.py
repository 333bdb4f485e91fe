"""Sleep and wake through the installed command, on real processes."""

import json
import os
import signal
import socket
import sys

import pytest

from kit.product import Product, pid_said, runs, wait_for

SLEEPER = ["sleep", "300"]


def mcp(product: Product, name: str = "clock") -> str:
    path = product.folder / "mcp.json"
    path.write_text(
        json.dumps({"mcpServers": {name: {"command": sys.executable, "args": ["-m", "acpmux.agents.demo_mcp"]}}})
    )
    return str(path)


def end(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def test_idle_session_sleeps_and_nothing_of_it_runs(sleepy: Product) -> None:
    sleepy.agent()
    sleepy.ok("new", "-a", "scripted", "-n", "s", "--mcp-config", mcp(sleepy))
    there = sleepy.json("ps", "s")["processes"]
    assert {row["verdict"] for row in there} == {"harness", "server"}
    sleepy.until("s", "hibernated")
    assert not [row["pid"] for row in there if runs(row["pid"])]


def test_next_prompt_wakes_it_with_the_same_command_folder_and_servers(sleepy: Product) -> None:
    record = sleepy.agent()
    sleepy.ok("new", "-a", "scripted", "-n", "s", "--mcp-config", mcp(sleepy))
    sleepy.ok("send", "s", "one")
    sleepy.until("s", "hibernated")
    assert sleepy.ok("send", "s", "two") == "echo: two\n"
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    first, second = (line for line in lines if "argv" in line)
    assert first == second
    opened = [
        line["got"]["params"]
        for line in lines
        if line.get("got", {}).get("method") in ("session/new", "session/resume")
    ]
    assert opened[0]["mcpServers"] == opened[1]["mcpServers"] and opened[0]["cwd"] == opened[1]["cwd"]


def test_mode_is_set_again_and_confirmed_before_the_prompt_goes_out(sleepy: Product) -> None:
    record = sleepy.agent(mode_after_load="wide")
    sleepy.ok("new", "-a", "scripted", "-n", "s")
    sleepy.ok("send", "s", "one")
    sleepy.until("s", "hibernated")
    sleepy.ok("send", "s", "two")
    methods = [json.loads(line)["got"]["method"] for line in record.read_text().splitlines() if '"got"' in line]
    assert methods[-3:] == ["session/resume", "session/set_mode", "session/prompt"]
    assert sleepy.json("info", "s")["mode"] == "default"


@pytest.mark.parametrize("how", ["contradict", "contradict by option"])
def test_mode_that_is_contradicted_keeps_the_prompt_back_and_says_why(product: Product, how: str) -> None:
    product.agent(set_mode=how)
    product.ok("new", "-a", "scripted", "-n", "s")
    product.ok("send", "s", "one")
    product.ok("hibernate", "s")
    told = product.fails("send", "s", "two")
    assert "did not take its stored mode 'default' again" in told and "no prompt was sent" in told
    row = product.json("info", "s")
    assert row["status"] == "hibernated" and row["queued"] == 1 and "mode" in row["lastError"]


def test_work_the_agent_started_keeps_it_awake_and_is_named(sleepy: Product) -> None:
    sleepy.agent()
    sleepy.ok("new", "-a", "scripted", "-n", "s")
    pid = pid_said(sleepy.steps("s", {"do": "spawn", "command": SLEEPER}))
    wait_for(lambda: sleepy.json("why", "s")["refusals"] >= 5, "five refused passes")
    assert runs(pid)
    told = sleepy.json("why", "s")
    assert [(h["kind"], h["pid"], h["command"]) for h in told["holds"]] == [("census", pid, "sleep 300")]
    assert f"pid {pid}" in sleepy.fails("hibernate", "s")
    assert sleepy.log().count("stays awake") == 1
    end(pid)
    sleepy.until("s", "hibernated")


def test_program_named_as_core_is_the_agents_own_only_in_its_os_session(product: Product) -> None:
    product.agent(config='core = ["sleep"]\n')
    product.ok("new", "-a", "scripted", "-n", "s")
    own = pid_said(product.steps("s", {"do": "spawn", "command": SLEEPER, "session": False}))
    apart = pid_said(product.steps("s", {"do": "spawn", "command": SLEEPER}))
    assert f"pid {apart}" in product.fails("hibernate", "s")
    end(apart)
    product.ok("hibernate", "s")
    assert not runs(own)


def test_child_in_the_agents_own_group_keeps_it_awake(product: Product) -> None:
    product.agent()
    product.ok("new", "-a", "scripted", "-n", "s")
    pid = pid_said(product.steps("s", {"do": "spawn", "command": SLEEPER, "session": False}))
    product.fails("hibernate", "s")
    assert runs(pid)
    end(pid)
    product.ok("hibernate", "s")


def test_a_servers_own_command_run_as_a_tool_is_no_server(product: Product) -> None:
    product.agent()
    product.ok("new", "-a", "scripted", "-n", "s", "--mcp-config", mcp(product))
    command = ["sh", "-c", f"sleep 300 | {sys.executable} -m acpmux.agents.demo_mcp"]
    pid = pid_said(product.steps("s", {"do": "spawn", "command": command}))
    product.fails("hibernate", "s")
    assert runs(pid)
    assert product.ok("stop", "s")


def test_work_that_left_the_tree_lives_on_and_does_not_keep_it_awake(product: Product) -> None:
    product.agent()
    product.ok("new", "-a", "scripted", "-n", "s")
    pid = pid_said(product.steps("s", {"do": "detach", "command": SLEEPER}))
    assert [row["verdict"] for row in product.json("ps", "s")["processes"]] == ["harness", "left-running"]
    product.ok("hibernate", "s")
    assert runs(pid)
    assert "left running: sleep 300" in product.ok("why", "s")
    end(pid)


TIES = [
    "pipe", "fifo", "socket", "tcp", "tcp not accepted", "terminal", "controlling terminal", "/dev/tty", "host",
]  # fmt: skip


@pytest.mark.parametrize("tie", TIES)
def test_work_that_left_the_tree_but_would_die_of_the_agents_end_holds_it(product: Product, tie: str) -> None:
    product.agent()
    product.ok("new", "-a", "scripted", "-n", "s")
    pid = pid_said(product.steps("s", {"do": "detach", "command": SLEEPER, "tie": tie}))
    assert "still holds a pipe" in product.fails("hibernate", "s")
    assert runs(pid)
    end(pid)


THREAD = """import ctypes, os, threading, time
own = threading.Event()
def work():
    if {apart}: ctypes.CDLL(None).unshare(0x400)
    own.set()
    time.sleep(300)
threading.Thread(target=work).start()
own.wait()
if {apart}: os.close(1); time.sleep(300)
ctypes.CDLL(None).pthread_exit(None)
"""


@pytest.mark.parametrize("apart", [False, True])
def test_pipe_that_only_a_thread_of_detached_work_still_holds_keeps_it_awake(product: Product, apart: bool) -> None:
    """Its main thread has ended, or has a table of descriptors apart from the thread's (unshare(2))."""
    product.agent()
    product.ok("new", "-a", "scripted", "-n", "s")
    command = [sys.executable, "-c", THREAD.format(apart=apart)]
    pid = pid_said(product.steps("s", {"do": "detach", "command": command, "tie": "pipe"}))
    wait_for(lambda: not os.path.exists(f"/proc/{pid}/fd/1"), "the main thread to let go of the pipe")
    assert "still holds a pipe" in product.fails("hibernate", "s")
    end(pid)
    product.ok("hibernate", "s")


def test_dev_server_that_left_the_tree_and_only_listens_is_left_running(product: Product) -> None:
    product.agent()
    product.ok("new", "-a", "scripted", "-n", "s")
    code = "import socket, time; s = socket.create_server(('127.0.0.1', 0)); print(s); open('up', 'w'); time.sleep(300)"
    command = ["sh", "-c", f'cd {product.folder} && exec {sys.executable} -c "{code}"']
    pid = pid_said(product.steps("s", {"do": "detach", "command": command}))
    wait_for(lambda: (product.folder / "up").exists(), "the server to listen")
    product.ok("hibernate", "s")
    assert runs(pid)
    end(pid)


def test_ps_shows_the_ports_that_are_listened_on(product: Product) -> None:
    product.agent()
    product.ok("new", "-a", "scripted", "-n", "s")
    code = "import socket, time; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1]); time.sleep(300)"
    pid = pid_said(product.steps("s", {"do": "spawn", "command": [sys.executable, "-c", code]}))
    wait_for(
        lambda: [row["ports"] for row in product.json("ps", "s")["processes"] if row["pid"] == pid] > [[]], "a port"
    )
    (port,) = next(row["ports"] for row in product.json("ps", "s")["processes"] if row["pid"] == pid)
    with socket.create_connection(("127.0.0.1", port)):
        pass
    assert f" {port} " in product.ok("ps", "s")
    end(pid)


def test_stop_says_what_it_leaves_and_all_ends_that_too(product: Product) -> None:
    product.agent()
    product.ok("new", "-a", "scripted", "-n", "s")
    left = pid_said(product.steps("s", {"do": "detach", "command": SLEEPER}))
    under = pid_said(product.steps("s", {"do": "spawn", "command": SLEEPER}))
    told = product.json("stop", "s")
    assert [row["pid"] for row in told["left"]] == [left]
    assert runs(left) and not runs(under)
    end(left)
    product.ok("wake", "s")
    left = pid_said(product.steps("s", {"do": "detach", "command": SLEEPER}))
    assert product.json("stop", "s", "--all")["left"] == []
    assert not runs(left)


def test_work_that_left_the_tree_before_a_sleep_is_shown_and_ended_by_its_mark(product: Product) -> None:
    product.agent()
    product.ok("new", "-a", "scripted", "-n", "s")
    left = pid_said(product.steps("s", {"do": "detach", "command": SLEEPER}))
    product.ok("hibernate", "s")
    assert [(row["pid"], row["verdict"]) for row in product.json("ps", "s")["processes"]] == [(left, "left-running")]
    assert [row["pid"] for row in product.json("stop", "s")["left"]] == [left]
    assert runs(left)
    told = product.json("stop", "s", "--all")
    assert [row["pid"] for row in told["ended"]] == [left] and told["left"] == []
    assert not runs(left)


def test_killed_host_leaves_no_second_agent_beside_the_next(product: Product) -> None:
    product.agent()
    product.ok("new", "-a", "scripted", "-n", "s", "--mcp-config", mcp(product))
    there = [row["pid"] for row in product.json("ps", "s")["processes"]]
    end(product.json("info", "s")["hostPid"])
    product.until("s", "hibernated")
    assert not [pid for pid in there if runs(pid)]
    assert product.ok("send", "s", "two") == "echo: two\n"


def test_agent_that_ignores_term_is_killed_after_its_grace(product: Product) -> None:
    (product.home / "config.toml").write_text('[idle]\nafter = "never"\ngrace = "300ms"\n')
    product.agent(ignore_term=True)
    product.ok("new", "-a", "scripted", "-n", "s")
    product.ok("hibernate", "s")
    assert product.json("ps", "s")["processes"] == []


def test_prompt_while_it_falls_asleep_is_answered_exactly_once(product: Product) -> None:
    (product.home / "config.toml").write_text('[idle]\nafter = "never"\ngrace = "5s"\n')
    record = product.agent(ignore_term=True)
    product.ok("new", "-a", "scripted", "-n", "s")
    product.ok("send", "s", "zero")
    asleep = product.spawn("hibernate", "s")
    product.until("s", "hibernating")
    assert product.ok("send", "s", "one") == "echo: one\n"
    asleep.communicate()
    texts = [line for line in record.read_text().splitlines() if '"session/prompt"' in line and '"one"' in line]
    assert len(texts) == 1


def test_attach_wakes_and_shows_the_stored_transcript(sleepy: Product) -> None:
    sleepy.agent()
    sleepy.ok("new", "-a", "scripted", "-n", "s")
    sleepy.ok("send", "s", "one")
    sleepy.until("s", "hibernated")
    done = sleepy.run("attach", "s", "--plain", stdin="two\n")
    assert done.returncode == 0
    assert done.stdout.index("echo: one") < done.stdout.index("echo: two")


def test_conversation_of_which_more_is_replayed_than_a_host_keeps_wakes(product: Product) -> None:
    product.agent(load=[{"do": "huge", "size": 1_000_000}] * 70, resumes="absent")
    product.ok("new", "-a", "scripted", "-n", "s")
    product.ok("send", "s", "hello")
    product.ok("hibernate", "s")
    assert product.ok("send", "s", "again") == "echo: again\n"
    assert "it woke by load" in product.ok("why", "s")
