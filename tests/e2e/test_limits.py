"""What is too much for one message, one pipe or one session fails alone: the session, its agent and its work go on."""

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from acpmux.wire.framing import MAX_LINE_BYTES
from kit.product import Product, pid_said, runs, wait_for

# jobs whose commands are as long as a program's arguments may be: more than two megabytes of them, escaped to twelve
JOBS = """
import subprocess, time
jobs = [subprocess.Popen(["sh", "-c", "sleep 300; :", *[b"\\xe9" * 4000] * 28]) for _ in range(20)]
time.sleep(300)
"""


def test_looking_at_work_with_very_long_commands_ends_nothing(product: Product) -> None:
    product.agent()
    product.ok("new", "-a", "scripted", "-n", "s")
    pid = pid_said(product.steps("s", {"do": "spawn", "command": [sys.executable, "-c", JOBS]}))
    told: list[dict[str, object]] = []
    while sum(row["ppid"] == pid for row in told) < 20:
        told = product.json("ps", "s")["processes"]
    jobs = [row for row in told if row["ppid"] == pid]
    assert all(row["cut"] for row in jobs) and not [row for row in told if row["pid"] == pid and row["cut"]]
    assert f"pid {pid}" in product.fails("hibernate", "s")
    assert all(runs(int(str(row["pid"]))) for row in told) and product.status("s") == "ready"


AGENT = """
import json, os, subprocess, sys, time
def answer(told, result): print(json.dumps({"jsonrpc": "2.0", "id": told["id"], "result": result}), flush=True)
for line in sys.stdin:
    told = json.loads(line)
    match told.get("method"):
        case "initialize": answer(told, {"protocolVersion": 1, "agentCapabilities": {"loadSession": True}})
        case "session/new": answer(told, {"sessionId": "A"})
        case "session/load":
            for _ in range(80):
                update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "x" * (1 << 20)}}
                said = {"method": "session/update", "params": {"sessionId": "A", "update": update}}
                print(json.dumps({"jsonrpc": "2.0", **said}), flush=True)
            answer(told, {})
        case "session/prompt":
            answer(told, {"stopReason": "end_turn"})
            text = told["params"]["prompt"][-1]["text"]
            if "flood" in text:
                subprocess.Popen(["yes", "noise"], stdin=subprocess.DEVNULL, start_new_session=True)
            if "exit" in text:
                time.sleep(0.3)
                os._exit(3)
"""


def flooding(product: Product, prompt: str) -> None:
    product.agent("flooding", command=[sys.executable, "-c", AGENT])
    product.ok("new", "-a", "flooding", "-n", "s")
    product.ok("send", "s", prompt)


def resident_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def test_agents_end_is_told_while_somebody_still_floods_its_stdout(product: Product) -> None:
    flooding(product, "flood, exit")
    product.until("s", "hibernated")
    assert "with code 3" in product.ok("why", "s")


def test_sleep_is_refused_while_somebody_floods_and_looking_still_works(product: Product) -> None:
    flooding(product, "flood")
    host = product.json("info", "s")["hostPid"]
    assert "has said more than was stored" in product.fails("hibernate", "s") or product.json("ps", "s")["processes"]
    time.sleep(3)
    assert product.json("ps", "s")["processes"] and product.status("s") == "ready"
    assert resident_mb(host) < 250


def test_agent_that_floods_is_stopped_in_time_and_fills_neither_memory_nor_store(product: Product) -> None:
    flooding(product, "flood")
    time.sleep(3)
    daemon = int((product.home / "daemon.lock").read_text())
    began = time.monotonic()
    product.ok("stop", "s")
    assert time.monotonic() - began < 15
    assert resident_mb(daemon) < 200 and product.json("info", "s")["lastSeq"] < 300


def test_session_whose_replay_is_larger_than_all_that_a_host_keeps_wakes(product: Product) -> None:
    flooding(product, "hello")
    product.ok("hibernate", "s")
    product.ok("send", "s", "again")
    assert product.status("s") == "ready"


@pytest.mark.parametrize(("fd", "what"), [(0, "its input"), (1, "its output")])
def test_agent_that_closes_a_pipe_and_lives_fails_its_turn_and_is_ended_alone(
    product: Product, fd: int, what: str
) -> None:
    product.agent()
    product.ok("new", "-a", "scripted", "-n", "s")
    leader = product.json("info", "s")["pid"]
    work = pid_said(product.steps("s", {"do": "spawn", "command": ["sleep", "300"]}))
    product.steps("s", {"do": "close", "fd": fd})
    time.sleep(0.4)
    told = product.fails("send", "s", "anybody there?")
    assert f"it closed {what} and lived on" in told
    product.until("s", "hibernated")
    assert not runs(leader) and runs(work)
    os.kill(work, signal.SIGKILL)
    assert product.ok("send", "s", "again") == "echo: again\n"


def test_prompt_that_grows_over_the_limit_fails_alone(product: Product) -> None:
    code = AGENT.replace('"sessionId": "A"', '"sessionId": "A" * 200000')
    product.agent("long", command=[sys.executable, "-c", code])
    product.ok("new", "-a", "long", "-n", "s")
    leader = product.json("info", "s")["pid"]
    text = "x" * (MAX_LINE_BYTES - 1000)
    done = product.run("send", "s", "-", stdin=text)
    assert done.returncode == 1 and "over the limit: nothing was sent" in done.stderr
    assert runs(leader) and product.status("s") == "ready"
    product.ok("send", "s", "hello")


def test_open_questions_of_a_session_are_bounded_and_one_too_many_is_refused(product: Product) -> None:
    product.agent()
    product.ok("new", "-a", "scripted", "-n", "s")
    asked = {
        "sessionId": "x",
        "toolCall": {"title": "t"},
        "options": [{"optionId": "y", "name": "Y", "kind": "allow_once"}],
    }
    lines = [
        json.dumps({"jsonrpc": "2.0", "id": 5000 + n, "method": "session/request_permission", "params": asked})
        for n in range(150)
    ]
    sending = product.spawn(
        "send", "s", json.dumps([*({"do": "raw", "line": line} for line in lines), {"do": "cancelled"}])
    )
    wait_for(lambda: product.json("info", "s")["asks"] == 100, "a hundred questions")
    product.ok("cancel", "s")
    product.until("s", "ready")
    assert product.json("info", "s")["asks"] == 0
    record = [json.loads(line) for line in (product.folder / "scripted.record").read_text().splitlines()]
    got = [told["got"] for told in record if "got" in told]
    assert sum("questions wait" in json.dumps(told) for told in got) == 50
    sending.communicate(timeout=20)


def test_turn_whose_answer_is_over_the_limit_fails_with_the_reason_and_the_next_one_runs(product: Product) -> None:
    code = AGENT.replace(
        '            answer(told, {"stopReason"',
        '            answer(told, {"x": "y" * 70_000_000 if "big" in line else "", "stopReason"',
    )
    product.agent("big", command=[sys.executable, "-c", code])
    product.ok("new", "-a", "big", "-n", "s")
    assert "over the limit" in product.fails("send", "s", "big")
    product.ok("send", "s", "small")
