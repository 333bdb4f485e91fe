"""The daemon as a service: what `daemon install` writes and asks for, and that no stop or restart of it ends an agent."""

import json
import os
import plistlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit import fake_systemctl
from kit.product import Product, wait_for


@pytest.fixture
def served(tmp_path: Path, nothing_left_behind: None) -> Iterator[Product]:
    """The installed command beside a service manager of its own."""
    made = Product(tmp_path)
    fake_systemctl.install(tmp_path / "systemd", made.env)
    yield made
    (tmp_path / "systemd/fails").unlink(missing_ok=True)
    made.end()


def unit(product: Product) -> Path:
    return Path(product.env["XDG_CONFIG_HOME"]) / "systemd/user/acpmux.service"


def calls(product: Product) -> list[list[str]]:
    path = Path(product.env["FAKE_SYSTEMCTL"]) / "calls"
    told = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [words for words in told if "show" not in words]


def systemctl(product: Product, *words: str) -> None:
    subprocess.run(["systemctl", "--user", *words], env=product.env, check=True)


def test_install_writes_the_unit_starts_it_and_says_who_serves(served: Product) -> None:
    told = served.json("daemon", "install")
    assert told == {"path": str(unit(served)), "changed": True, "pid": told["pid"], "started": True}
    assert calls(served) == [["--user", "daemon-reload"], ["--user", "enable", "--now", "acpmux.service"]]
    assert unit(served).stat().st_mode & 0o777 == 0o644 and len(list(unit(served).parent.iterdir())) == 1
    status = served.json("daemon", "status")
    assert status["pid"] == told["pid"] and status["home"] == str(served.home)
    assert status["unit"] == {
        "manager": "systemd",
        "path": str(unit(served)),
        "state": "current",
        "program": sys.executable,
        "programGone": False,
        "home": str(served.home),
        "startedThis": True,
    }


def test_installing_again_changes_nothing_and_a_new_path_renews_it(served: Product) -> None:
    pid = served.json("daemon", "install")["pid"]
    before = unit(served).read_text()
    assert served.json("daemon", "install") == {
        "path": str(unit(served)),
        "changed": False,
        "pid": pid,
        "started": True,
    }
    served.env["PATH"] += ":/new"
    told = served.ok("daemon", "install")
    assert f"pid {pid}), by the earlier unit until: systemctl --user restart acpmux" in told
    assert unit(served).read_text() != before


def test_restart_stop_and_uninstall_of_the_service_leave_agents_and_their_turns(served: Product) -> None:
    served.agent()
    served.ok("daemon", "install")
    served.ok("new", "-a", "scripted", "-n", "s")
    first = served.json("info", "s")
    gate = served.folder / "gate"
    subprocess.run(["mkfifo", str(gate)], check=True)
    served.ok("send", "s", json.dumps([{"do": "gate", "path": str(gate)}, {"do": "say", "text": "done"}]), "--no-wait")
    wait_for(lambda: Path(f"{gate}.reached").exists(), "the gate")
    daemons = {served.json("daemon", "status")["pid"]}
    for again in (["restart", "acpmux"], ["disable", "acpmux"]):
        systemctl(served, *again)
        row = served.json("info", "s")
        assert (row["status"], row["pid"], row["hostPid"]) == ("running", first["pid"], first["hostPid"])
        daemons.add(served.json("daemon", "status")["pid"])
    assert len(daemons) == 3
    served.ok("daemon", "shutdown")
    systemctl(served, "start", "acpmux")
    assert "Agents run on" in served.ok("daemon", "uninstall") and not unit(served).exists()
    assert served.run("daemon", "status").returncode == 1
    gate.write_text("")
    served.until("s", "ready")
    assert served.ok("last", "s") == "done\n" and served.json("info", "s")["pid"] == first["pid"]


def test_daemon_that_runs_already_goes_on_and_the_hand_over_is_told(served: Product) -> None:
    served.ok("daemon", "start")
    pid = served.json("daemon", "status")["pid"]
    told = served.ok("daemon", "install")
    assert f"Another daemon serves (pid {pid}) and goes on" in told
    assert "acpmux daemon shutdown && acpmux daemon start" in told
    assert "was not started by it" in served.ok("daemon", "status")
    served.ok("daemon", "shutdown")
    served.ok("daemon", "start")
    assert served.json("daemon", "status")["unit"]["startedThis"] is True


def test_second_daemon_gives_way_as_a_success_and_a_bad_config_as_what_is_not_tried_again(product: Product) -> None:
    product.ok("daemon", "start")
    done = product.run("daemon", "run")
    assert done.returncode == 0 and "another daemon runs" in done.stderr
    product.ok("daemon", "shutdown")
    (product.home / "config.toml").write_text("nonsense = 1\n")
    assert "nonsense" in product.fails("daemon", "run", code=2)


def test_print_and_no_start_ask_nothing_of_the_service_manager(served: Product) -> None:
    text = served.ok("daemon", "install", "--print")
    assert not unit(served).exists() and served.json("daemon", "install", "--print")["text"] == text
    told = served.ok("daemon", "install", "--no-start")
    assert unit(served).read_text() == text
    assert "systemctl --user daemon-reload && systemctl --user enable --now acpmux.service" in told
    assert calls(served) == [] and served.run("daemon", "status").returncode == 1


def test_edited_unit_and_one_of_another_home_are_kept_unless_forced(served: Product) -> None:
    served.ok("daemon", "install", "--no-start")
    ours = unit(served).read_text()
    unit(served).write_text(ours + "Nice=5\n")
    for command in ("install", "uninstall"):
        told = served.fails("daemon", command)
        assert "edited by hand" in told and "--force" in told
    assert unit(served).read_text() == ours + "Nice=5\n"
    served.ok("daemon", "install", "--no-start", "--force")
    assert unit(served).read_text() == ours
    served.env["ACPMUX_HOME"] = str(served.folder / "other")
    assert f"another state folder, {served.home}" in served.fails("daemon", "install")
    assert f"another state folder, {served.home}" in served.fails("daemon", "uninstall")
    assert unit(served).read_text() == ours
    served.ok("daemon", "uninstall", "--force")
    assert not unit(served).exists()


def test_service_of_another_home_goes_on_also_when_its_unit_is_replaced(served: Product) -> None:
    pid = served.json("daemon", "install")["pid"]
    first = served.env["ACPMUX_HOME"]
    served.env["ACPMUX_HOME"] = str(served.folder / "other")
    assert "systemctl --user restart acpmux" in served.ok("daemon", "install", "--force")
    served.env["ACPMUX_HOME"] = first
    status = served.json("daemon", "status")
    assert (status["pid"], status["unit"]["state"]) == (pid, "elsewhere")


def test_unit_whose_python_is_gone_or_is_another_is_told(served: Product) -> None:
    served.ok("daemon", "install", "--no-start")
    finding = {row["what"]: row for row in served.json("doctor")}["service"]
    assert (finding["level"], finding["detail"]) == ("ok", str(unit(served)))
    unit(served).write_text(unit(served).read_text().replace(sys.executable, "/gone/python"))
    done = json.loads(served.run("doctor", "--json").stdout)
    finding = {row["what"]: row for row in done}["service"]
    assert finding["level"] == "without" and "its Python is gone: /gone/python" in finding["detail"]
    assert "/gone/python" in served.run("daemon", "status").stdout


def test_service_manager_that_fails_is_quoted_and_the_unit_stays(served: Product) -> None:
    (served.folder / "systemd/fails").write_text("Failed to connect to bus: No medium found")
    assert "daemon-reload: Failed to connect to bus: No medium found" in served.fails("daemon", "install")
    assert "Failed to connect to bus" in served.fails("daemon", "uninstall")
    assert unit(served).exists()


def test_config_that_does_not_hold_is_told_before_anything_is_written(served: Product) -> None:
    (served.home / "config.toml").write_text("nonsense = 1\n")
    assert "nonsense" in served.fails("daemon", "install", code=2)
    assert calls(served) == [] and not unit(served).exists()


def test_machine_without_a_service_manager_gets_the_unit_printed_and_is_told_how_to_go_on(product: Product) -> None:
    product.env |= {"PATH": "/nowhere", "XDG_CONFIG_HOME": str(product.folder / "config")}
    assert "[Service]" in product.ok("daemon", "install", "--print")
    told = product.fails("daemon", "install")
    assert "no systemctl" in told and "acpmux ls" in told and not (product.folder / "config").exists()


def test_uninstall_of_nothing_is_no_fault(served: Product) -> None:
    assert "No unit is installed" in served.ok("daemon", "uninstall")
    assert calls(served) == []


LAUNCHCTL = """#!/bin/sh
cd {folder}
[ "$1" = print ] || echo "$@" >> calls
case $1 in
  print) [ -e loaded ] || exit 113 ;;
  bootstrap) [ ! -e loaded ] || exit 5; touch loaded ;;
  bootout) rm loaded || exit 3 ;;
esac
"""


def test_on_macos_the_agent_is_loaded_once_and_taken_back(product: Product) -> None:
    product.ok("daemon", "start")
    product.env |= {"HOME": str(product.folder), "PATH": f"{product.folder}:{product.env['PATH']}"}
    (product.folder / "launchctl").write_text(LAUNCHCTL.format(folder=product.folder))
    (product.folder / "launchctl").chmod(0o755)
    file = product.folder / "Library/LaunchAgents/acpmux.daemon.plist"

    def mac(*args: str) -> str:
        code = "import sys; sys.platform = 'darwin'; from acpmux.cli.app import run; run()"
        done = subprocess.run([sys.executable, "-c", code, *args], env=product.env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert f"Written: {file}" in mac("daemon", "install")
    assert plistlib.loads(file.read_bytes())["EnvironmentVariables"]["ACPMUX_HOME"] == str(product.home)
    assert "Unchanged" in mac("daemon", "install")
    assert "Agents run on" in mac("daemon", "uninstall") and not file.exists()
    uid = os.getuid()
    assert (product.folder / "calls").read_text().splitlines() == [
        f"bootstrap gui/{uid} {file}",
        f"bootout gui/{uid}/acpmux.daemon",
    ]
