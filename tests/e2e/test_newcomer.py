"""What a person does in the first hour, and what they must not trip over."""

import json
import os
import signal
import subprocess
from pathlib import Path

from kit.product import COMMAND, Product, wait_for


def gate_steps(product: Product) -> tuple[Path, str]:
    gate = product.folder / "gate"
    os.mkfifo(gate)
    return gate, json.dumps([{"do": "gate", "path": str(gate)}, {"do": "say", "text": "mine is done"}])


def test_ctrl_c_in_a_queued_send_takes_that_prompt_back_and_leaves_the_running_turn(product: Product) -> None:
    product.agent()
    product.ok("new", "-a", "scripted", "-n", "s")
    gate, steps = gate_steps(product)
    product.ok("send", "s", steps, "--no-wait")
    wait_for(lambda: Path(f"{gate}.reached").exists(), "the gate")
    queued = product.spawn("send", "s", "theirs")
    wait_for(lambda: product.json("info", "s")["queued"] == 1, "the queue")
    queued.send_signal(signal.SIGINT)
    _, told = queued.communicate(timeout=20)
    assert queued.returncode == 130 and "queued behind 1 prompt" in told
    assert product.json("info", "s")["queued"] == 0 and product.status("s") == "running"
    gate.write_text("")
    product.until("s", "ready")
    assert "mine is done" in product.ok("last", "s", "-n", "2")
    assert "echo: theirs" not in product.ok("last", "s", "-n", "5")


def test_run_of_an_agent_that_does_not_start_keeps_the_prompt_and_says_how_to_go_on(product: Product) -> None:
    product.agent("exits", command=["sh", "-c", "exit 3"])
    told = product.fails("run", "-a", "exits", "-n", "kept", "a precious prompt")
    assert "with code 3" in told and "The prompt is kept; try again: acpmux wake kept" in told
    row = product.json("info", "kept")
    assert (row["status"], row["queued"]) == ("hibernated", 1)


def test_agent_that_exits_at_once_is_always_told_as_such(product: Product) -> None:
    product.agent("true", command=["true"])
    for number in range(5):
        assert "exited at its start with code 0" in product.fails("new", "-a", "true", "-n", f"n{number}")


def test_transcript_alone_wakes_nothing_and_detach_in_a_pipe_is_no_prompt(product: Product) -> None:
    product.agent()
    product.ok("new", "-a", "scripted", "-n", "s")
    product.ok("send", "s", "one")
    product.ok("hibernate", "s")
    told = product.run("attach", "s", "--plain", stdin="")
    assert "> one" in told.stdout and "echo: one" in told.stdout
    assert product.status("s") == "hibernated"
    product.run("attach", "s", "--plain", stdin="/detach\n")
    assert "detach" not in product.ok("last", "s", "-n", "3")


def test_words_without_quotes_are_one_prompt_and_a_repeated_id_prints_its_reply_again(product: Product) -> None:
    product.agent()
    product.ok("new", "-a", "scripted", "-n", "s")
    assert product.ok("send", "s", "hello", "there", "--prompt-id", "p") == "echo: hello there\n"
    assert product.ok("send", "s", "hello there", "--prompt-id", "p") == "echo: hello there\n"


def test_missing_mcp_program_is_told_at_the_start(product: Product) -> None:
    product.agent()
    path = product.folder / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {"m": {"command": "no-such-program"}}}))
    done = product.run("new", "-a", "scripted", "-n", "s", "--mcp-config", str(path))
    assert done.returncode == 0 and "MCP server 'm': its program 'no-such-program' is not there" in done.stderr
    assert "no-such-program" in product.ok("why", "s")


def test_doctor_tells_a_broken_config(product: Product) -> None:
    (product.home / "config.toml").write_text("[idle]\nafter = 5\n")
    done = product.run("doctor")
    assert done.returncode == 1 and "idle.after" in done.stdout


def test_config_in_force_is_told_with_where_each_value_comes_from(product: Product) -> None:
    path = str(product.home / "config.toml")
    assert product.ok("daemon", "config") == f"{path}\n"
    told = product.json("daemon", "config", "--values")
    assert (told["path"], told["exists"]) == (path, True)
    rows = {row["key"]: (row["value"], row["source"]) for row in told["values"]}
    assert rows["home"] == (str(product.home), "ACPMUX_HOME")
    assert rows["idle.after"] == ("never", "file") and rows["idle.grace"] == ("5s", "default")
    assert "idle.grace" in product.ok("daemon", "config", "--values")


def test_output_that_can_not_be_written_is_one_line_and_a_closed_pipe_none(product: Product) -> None:
    product.agent()
    product.ok("new", "-a", "scripted", "-n", "s")
    with open("/dev/full", "w") as full:
        done = subprocess.run([COMMAND, "ls"], env=product.env, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1 and "Traceback" not in done.stderr
    piped = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {COMMAND} ls --json | true"], env=product.env, capture_output=True, text=True
    )
    assert piped.returncode == 0 and piped.stderr == ""


def test_tiny_period_beside_work_does_not_flood_the_log(product: Product) -> None:
    product.agent()
    product.ok("new", "-a", "scripted", "-n", "s", "--idle-after", "1ms")
    product.steps("s", {"do": "spawn", "command": ["sleep", "300"]})
    wait_for(lambda: product.json("why", "s")["refusals"] >= 3, "refusals")
    story = product.json("why", "s")["story"]
    assert "times)" in story[-1]["text"] and len(story) <= 12
    product.ok("stop", "s")
