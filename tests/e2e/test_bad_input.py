"""Bad input and bad days: each a clear error with what to do next, the prompt kept, nothing left running."""

import json
import os
import signal
import subprocess
import time

import pytest

from acpmux.cli.start import _config_text
from acpmux.errors import ConfigFault
from kit.product import COMMAND, Product, wait_for


def test_unknown_agent_names_near_ones(product: Product) -> None:
    told = product.fails("new", "-a", "cluade")
    assert "no agent is called 'cluade'" in told and "claude" in told and "acpmux agents" in told
    assert product.json("ls") == []


def test_missing_program_says_how_to_install_it_and_keeps_no_session(product: Product) -> None:
    product.agent("claude", command=["no-such-program-at-all"])
    told = product.fails("new", "-a", "claude")
    assert "not on PATH" in told and "npm install" in told
    assert product.json("ls") == []


def test_failed_start_with_a_prompt_keeps_both(product: Product) -> None:
    product.agent("broken", command=["no-such-program-at-all"])
    product.fails("new", "-a", "broken", "-n", "s", "do it")
    row = product.json("info", "s")
    assert (row["status"], row["queued"]) == ("hibernated", 1) and "not on PATH" in row["lastError"]


def test_broken_config_names_the_file_and_the_key(product: Product) -> None:
    (product.home / "config.toml").write_text("[idle]\nafterr = '2m'\n")
    told = product.fails("ls")
    assert "config.toml" in told and "idle.afterr" in told and "did you mean 'after'" in told


def test_config_that_is_a_pipe_is_named_and_no_daemon_hangs(product: Product) -> None:
    (product.home / "config.toml").unlink()
    os.mkfifo(product.home / "config.toml")
    told = product.fails("ls")
    assert "config.toml can't be read: it is no plain file" in told


def test_mcp_config_may_come_through_a_pipe_and_one_that_nobody_writes_to_is_named(
    product: Product, monkeypatch: pytest.MonkeyPatch
) -> None:
    product.agent()
    nap = json.dumps({"mcpServers": {"nap": {"command": "sleep", "args": ["300"]}}})
    script = f"exec {COMMAND} new -a scripted -n s --mcp-config <(sleep 0.5; echo '{nap}')"
    subprocess.run(["bash", "-c", script], env=product.env, check=True, stdout=subprocess.DEVNULL, timeout=60)
    assert any(row["argv"][:1] == ["sleep"] for row in product.json("ps", "s")["processes"])
    monkeypatch.setattr("acpmux.cli.start.PIPE_BUDGET_S", 0.2)
    os.mkfifo(product.folder / "pipe")
    with pytest.raises(ConfigFault, match=r"pipe can't be read: nobody wrote to it for 0\.2 s"):
        _config_text(str(product.folder / "pipe"))


def test_stopped_daemon_is_named_in_time_with_what_to_do(product: Product) -> None:
    product.agent()
    product.ok("new", "-a", "scripted", "-n", "s")
    pid = product.json("daemon", "status")["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        told = product.fails("send", "s", "hi", "--timeout", "1", code=3)
        assert time.monotonic() - began < 5
        doctor = product.run("doctor")
    finally:
        os.kill(pid, signal.SIGCONT)
    assert f"the daemon (pid {pid}) is stopped" in told and f"kill -CONT {pid}" in told
    assert doctor.returncode == 1 and f"kill -CONT {pid}" in doctor.stdout
    assert product.ok("send", "s", "hi") == "echo: hi\n"


def test_relative_home_is_the_same_for_the_daemon_and_its_clients(product: Product) -> None:
    product.ok("daemon", "start")
    done = subprocess.run(
        [COMMAND, "daemon", "start", "--json"],
        cwd=product.folder,
        env=product.env | {"ACPMUX_HOME": "./beside"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0 and json.loads(done.stdout)["home"] == str(product.folder / "beside")
    assert not os.path.exists("/beside")
    beside = Product(product.folder)
    beside.env["ACPMUX_HOME"] = str(product.folder / "beside")
    beside.ok("daemon", "shutdown")


def test_broken_mcp_config_is_named(product: Product) -> None:
    product.agent()
    path = product.folder / "bad.json"
    path.write_text("{")
    told = product.fails("new", "-a", "scripted", "--mcp-config", str(path), code=2)
    assert "bad.json" in told and "not valid JSON" in told


def test_agent_that_exits_at_start_shows_its_last_words(product: Product) -> None:
    product.agent(start=[{"do": "stderr", "text": "no licence found"}, {"do": "exit", "code": 3}])
    told = product.fails("new", "-a", "scripted")
    assert "code 3" in told and "no licence found" in told
    assert product.json("ls") == []


def test_agent_that_hangs_in_initialize_meets_its_deadline(product: Product) -> None:
    with open(product.home / "config.toml", "a") as file:
        file.write('[start]\ninitialize = "400ms"\n')
    product.agent(initialize=[{"do": "hang"}])
    told = product.fails("new", "-a", "scripted", "-n", "s", "do it")
    assert "did not answer initialize within 0.4 s" in told and "[start] initialize" in told
    assert product.json("ps", "s")["processes"] == []
    assert product.json("info", "s")["queued"] == 1


def test_noise_between_messages_is_kept_and_harms_nothing(product: Product) -> None:
    product.agent(start=[{"do": "raw", "line": "starting up ..."}, {"do": "bytes", "hex": "fffe80"}])
    product.ok("new", "-a", "scripted", "-n", "s")
    reply = product.steps(
        "s",
        {"do": "raw", "line": "{not json"},
        {"do": "bytes", "hex": "ff00ff"},
        {"do": "raw", "line": "[]"},
        {"do": "raw", "line": '{"jsonrpc":"2.0","id":999,"result":{}}'},
        {"do": "say", "text": "still here"},
    )
    assert reply == "still here\n"


def test_fifty_megabyte_line_passes(product: Product) -> None:
    product.agent()
    product.ok("new", "-a", "scripted", "-n", "s")
    assert len(product.steps("s", {"do": "huge", "size": 50_000_000})) == 50_000_001


def test_line_over_the_limit_fails_alone(product: Product) -> None:
    product.agent()
    product.ok("new", "-a", "scripted", "-n", "s")
    reply = product.steps("s", {"do": "huge", "size": 70_000_000}, {"do": "say", "text": "and on"})
    assert reply == "and on\n"


def test_unknown_things_from_the_agent_survive_byte_for_byte(product: Product) -> None:
    product.agent()
    product.ok("new", "-a", "scripted", "-n", "s")
    odd = (
        '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"agent-session-1","update":'
        '{"sessionUpdate":"never_seen","n":123456789012345678901234567890,"f":1.50e+3,"z":null,"s":"\\ud800"},"x":[1, 2]}}'
    )
    product.steps("s", {"do": "raw", "line": odd})
    rows = product.run("attach", "s", "--plain", "--json").stdout
    assert '"never_seen"' in rows
    body = next(
        e["body"]
        for e in json.loads(rows)
        if e["kind"] == "update" and e["body"]["update"]["sessionUpdate"] == "never_seen"
    )
    assert body["update"]["n"] == 123456789012345678901234567890 and body["update"]["z"] is None
    import sqlite3

    with sqlite3.connect(product.home / "acpmux.db") as db:
        stored = [row[0] for row in db.execute("SELECT body FROM records WHERE kind = 'update'")]
    db.close()
    assert odd[odd.index('{"sessionId"') : -1].encode() in stored


def test_agent_that_exits_in_mid_turn_fails_the_turn_and_the_next_prompt_wakes_it(product: Product) -> None:
    product.agent()
    product.ok("new", "-a", "scripted", "-n", "s")
    told = product.fails("send", "s", '[{"do": "exit", "code": 9}]')
    assert "exited with code 9" in told
    assert product.ok("send", "s", "again") == "echo: again\n"


def test_agent_killed_from_outside_is_told_and_its_servers_are_cleaned(product: Product) -> None:
    product.agent()
    path = product.folder / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {"nap": {"command": "sleep", "args": ["300"]}}}))
    product.ok("new", "-a", "scripted", "-n", "s", "--mcp-config", str(path))
    pid = product.json("info", "s")["pid"]
    os.kill(pid, signal.SIGKILL)
    product.until("s", "hibernated")
    assert "by signal 9" in product.json("info", "s")["lastError"]


def test_error_answer_of_the_agent_reaches_the_sender(product: Product) -> None:
    product.agent()
    product.ok("new", "-a", "scripted", "-n", "s")
    told = product.run("send", "s", '[{"do": "fail", "code": -32011, "message": "quota is spent"}]', "--json")
    assert told.returncode == 1
    assert "quota is spent" in json.loads(told.stderr)["error"]["message"]


def test_session_the_agent_forgot_goes_on_with_its_transcript(product: Product) -> None:
    record = product.agent(loads=-32603, resumes=-32002)
    product.ok("new", "-a", "scripted", "-n", "s")
    product.ok("send", "s", "my name is Ada")
    product.ok("hibernate", "s")
    product.ok("send", "s", "go on")
    prompts = [line for line in record.read_text().splitlines() if '"session/prompt"' in line]
    assert "my name is Ada" in prompts[-1] and "carried over" in prompts[-1]
    assert "began afresh with the stored transcript" in product.ok("why", "s")


def test_unknown_session_suggests_and_exits_4(product: Product) -> None:
    product.agent()
    product.ok("new", "-a", "scripted", "-n", "website")
    assert "website" in product.fails("send", "webiste", "x", code=4)


def test_errors_as_json_go_to_stderr(product: Product) -> None:
    done = product.run("info", "nobody", "--json")
    assert done.returncode == 4 and done.stdout == ""
    error = json.loads(done.stderr)["error"]
    assert error["code"] == "no_such_session" and set(error) >= {"code", "message", "detail", "sessionId", "retryable"}


def test_usage_error_exits_2(product: Product) -> None:
    assert product.run("send").returncode == 2
    assert "Did you mean" in product.fails("hibernat", code=2)


def test_every_permission_denied_exits_5(product: Product) -> None:
    product.agent()
    product.ok("new", "-a", "scripted", "-n", "s")
    done = product.run("send", "s", '[{"do": "ask"}]', "--on-permission", "deny")
    assert done.returncode == 5 and '"no"' in done.stdout


def test_permission_waits_for_allow(product: Product) -> None:
    product.agent()
    product.ok("new", "-a", "scripted", "-n", "s")
    sender = product.spawn("send", "s", '[{"do": "ask"}]')
    product.until("s", "waiting")
    (row,) = product.json("pending")
    assert row["title"] == "touch the file" and [o["optionId"] for o in row["options"]] == ["yes", "no"]
    product.ok("allow", "s")
    out, _ = sender.communicate(timeout=20)
    assert '"yes"' in out
    product.fails("allow", "s")


def test_timeout_exits_3_and_the_turn_goes_on(product: Product) -> None:
    product.agent()
    product.ok("new", "-a", "scripted", "-n", "s")
    done = product.run("send", "s", '[{"do": "cancelled"}]', "--timeout", "0.3")
    assert done.returncode == 3 and "goes on" in done.stderr
    assert product.status("s") == "running"
    product.ok("cancel", "s")
    product.until("s", "ready")


def test_prompt_id_runs_once(product: Product) -> None:
    record = product.agent()
    product.ok("new", "-a", "scripted", "-n", "s")
    first = product.run("send", "s", "one", "--prompt-id", "x1", "--json")
    second = product.run("send", "s", "one", "--prompt-id", "x1", "--json")
    assert json.loads(first.stdout) == json.loads(second.stdout)
    assert record.read_text().count('"session/prompt"') == 1


def test_two_clients_starting_at_once_share_one_daemon(product: Product) -> None:
    started = [product.spawn("daemon", "status", "--json"), *(product.spawn("ls", "--json") for _ in range(4))]
    done = [process.communicate(timeout=30) for process in started]
    assert all(process.returncode == 0 for process in started[1:]), done
    wait_for(lambda: product.run("daemon", "status").returncode == 0, "the daemon")


def test_home_with_a_path_too_long_for_a_socket_works(product: Product) -> None:
    deep = product.home / ("d" * 120) / ("e" * 100)
    product.env["ACPMUX_HOME"] = str(deep)
    try:
        assert product.json("ls") == []
        socket = product.json("daemon", "status")["socket"]
        assert len(socket) < 104
    finally:
        product.ok("daemon", "shutdown")
    wait_for(lambda: not os.path.exists(os.path.dirname(socket)), "the short folder to be taken away")


def test_question_with_half_a_character_is_asked_answered_and_survives_the_daemon(product: Product) -> None:
    product.agent()
    product.ok("new", "-a", "scripted", "-n", "s")
    half = r'{"jsonrpc":"2.0","id":7,"method":"session/request_permission","params":{"sessionId":"x","toolCall":{"title":"cut \ud83d"},"options":[{"optionId":"y","name":"Y","kind":"allow_once"}]}}'  # fmt: skip
    product.ok("send", "s", json.dumps([{"do": "raw", "line": half}, {"do": "cancelled"}]), "--no-wait")
    product.until("s", "waiting")
    product.ok("daemon", "shutdown")
    (ask,) = product.json("pending")
    assert ask["title"] == "cut \ufffd"
    product.ok("allow", "s")
    product.ok("cancel", "s")
    product.until("s", "ready")


@pytest.mark.parametrize(
    "line",
    [
        '{"jsonrpc":"2.0","method":"session/update","params":7}',
        '{"jsonrpc":"2.0","method":"session/update","params":{"update":{"sessionUpdate":7}}}',
        r'{"jsonrpc":"2.0","method":"session/update","params":{"update":{"sessionUpdate":"session_info_update","title":"\ud83d"}}}',
        '{"jsonrpc":"2.0","method":"session/update","params":{"update":{"sessionUpdate":"odd","n":'
        + "9" * 6000
        + "}}}",
        '{"jsonrpc":"2.0","id":8,"method":"session/request_permission"}',
        '{"jsonrpc":"2.0","id":' + "9" * 6000 + ',"method":"fs/read_text_file"}',
        '{"jsonrpc":"2.0","method":"session/update","params":' + '{"a":' * 3000 + "1" + "}" * 3000 + "}",
    ],
)
def test_line_that_is_odd_stops_neither_its_turn_nor_its_followers_nor_the_next_daemon(
    product: Product, line: str
) -> None:
    product.agent()
    product.ok("new", "-a", "scripted", "-n", "s")
    assert product.steps("s", {"do": "raw", "line": line}, {"do": "say", "text": "after"}).endswith("after\n")
    product.ok("daemon", "shutdown")
    assert product.ok("send", "s", "hello") == "echo: hello\n"
    assert "after" in product.ok("last", "s", "-n", "2")


def test_agent_can_not_repaint_the_terminal_of_a_person(product: Product) -> None:
    product.agent()
    product.ok("new", "-a", "scripted", "-n", "s")
    title = json.dumps({"jsonrpc": "2.0", "method": "session/update", "params": {"update": {"sessionUpdate": "session_info_update", "title": "\x1b[2Jt"}}})  # fmt: skip
    said = product.steps("s", {"do": "raw", "line": title}, {"do": "say", "text": "\x1b[31mred\x1b]0;x\x07"})
    shown = said + product.ok("ls") + product.ok("last", "s") + product.ok("why", "s") + product.ok("info", "s")
    assert "red" in shown and "\x1b" not in shown
    assert "\x1b[31mred" in product.json("last", "s")[0]["reply"]
