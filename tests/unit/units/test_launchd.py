import plistlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acpmux.errors import UsageFault
from acpmux.units.launchd import manager, read, render
from acpmux.units.unit import Facts

PLAIN = Facts("/opt/acpmux/bin/python", "/Users/u/state/acpmux", "/usr/bin:/bin")
values = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff"))


def test_agent_runs_the_daemon_and_is_told_to_leave_hosts_alone() -> None:
    assert plistlib.loads(render(PLAIN).encode()) == {
        "Label": "acpmux.daemon",
        "ProgramArguments": [PLAIN.program, "-m", "acpmux", "daemon", "run"],
        "WorkingDirectory": "/",
        "EnvironmentVariables": {"ACPMUX_HOME": PLAIN.home, "PATH": PLAIN.path},
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "AbandonProcessGroup": True,
        "ProcessType": "Interactive",
        "StandardOutPath": f"{PLAIN.home}/logs/daemon.out",
        "StandardErrorPath": f"{PLAIN.home}/logs/daemon.out",
    }


@given(values, values, values)
def test_any_text_that_xml_can_hold_is_read_back(program: str, home: str, path: str) -> None:
    facts = Facts(program, home, path)
    assert read(render(facts)) == facts


@pytest.mark.parametrize(("home", "path"), [("/\n", "/"), ("/", "/\x7f"), ("/\udcff", "/"), ("/", "/\uffff")])
def test_what_xml_can_not_hold_is_refused(home: str, path: str) -> None:
    with pytest.raises(UsageFault, match="holds a character"):
        render(replace(PLAIN, home=home, path=path))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\0",
        "<plist>",
        "<plist><array/></plist>",
        "<plist><dict/></plist>",
        "<plist><dict><key>ProgramArguments</key><string>x</string></dict></plist>",
        "bplist00",
    ],
)
def test_text_that_is_no_agent_is_read_without_a_fault(text: str) -> None:
    assert read(text) is None


def test_file_with_a_quote_in_its_path_can_be_typed() -> None:
    there = manager(501)
    assert there.file.endswith("/Library/LaunchAgents/acpmux.daemon.plist")
    assert there.start == ("launchctl", "bootstrap", "gui/501", there.file)
    assert there.stop == ("launchctl", "bootout", "gui/501/acpmux.daemon")
