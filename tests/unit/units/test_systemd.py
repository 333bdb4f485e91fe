from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acpmux.errors import UsageFault
from acpmux.units.systemd import manager, read, render
from acpmux.units.unit import Facts

PLAIN = Facts("/opt/acpmux/bin/python", "/home/u/.local/state/acpmux", "/usr/bin:/bin")
HOSTILE = (
    "/a b",
    '/say "hi"',
    "/it's",
    "/100%h%%",
    "/$HOME${X}$$",
    "/back\\slash\\n\\x41\\",
    "/line\nExecStart=/bin/evil\n",
    "/tab\t\r\x1b\x7f",
    "/ümläut\u2028\x85",
    "/#;=[Service]",
    "/ trailing ",
)
values = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


def settings(text: str) -> list[tuple[str, str, str]]:
    """(section, key, value) of each line, as systemd.syntax(7) has them."""
    section, found = "", []
    for line in text.split("\n"):
        if line.startswith("["):
            section = line.strip("[]")
        elif line and line[0] not in "#;":
            key, _, value = line.partition("=")
            found.append((section, key, value))
    return found


def words(value: str) -> list[str]:
    """The words of a value as systemd takes them: quotes and C escapes, then specifiers."""
    found, word, quote, at = [], None, "", 0
    while at < len(value):
        char = value[at]
        if char == "\\":
            kind = value[at + 1]
            char = chr(int(value[at + 2 : at + 4], 16)) if kind == "x" else {"\\": "\\", '"': '"'}[kind]
            word, at = (word or "") + char, at + (4 if kind == "x" else 2)
            continue
        if char == quote or (not quote and char in "\"'"):
            quote, word = ("" if quote else char), word or ""
        elif char == " " and not quote:
            found, word = ([*found, word] if word is not None else found), None
        else:
            word = (word or "") + char
        at += 1
    assert not quote
    found = [*found, word] if word is not None else found
    assert all("%" not in one.replace("%%", "") for one in found), "a specifier"
    return [one.replace("%%", "%") for one in found]


def environment(text: str) -> dict[str, str]:
    told = [words(value) for section, key, value in settings(text) if (section, key) == ("Service", "Environment")]
    assert all(len(one) == 1 for one in told)
    return dict(one[0].split("=", 1) for one in told)


def test_unit_runs_the_daemon_in_the_foreground_with_its_home_and_path_and_no_other_variable() -> None:
    told = render(PLAIN)
    (start,) = (value for _, key, value in settings(told) if key == "ExecStart")
    assert words(start) == [f":{PLAIN.program}", "-m", "acpmux", "daemon", "run"]
    assert environment(told) == {"ACPMUX_HOME": PLAIN.home, "PATH": PLAIN.path}


def test_neither_a_stop_nor_a_full_memory_nor_a_limit_of_one_service_ends_the_agents() -> None:
    told = {(section, key): value for section, key, value in settings(render(PLAIN))}
    assert told["Service", "KillMode"] == "process"
    assert told["Service", "OOMPolicy"] == "continue"
    assert told["Service", "TasksMax"] == "infinity"


def test_unit_that_gave_way_to_another_daemon_or_has_no_valid_config_is_not_started_again() -> None:
    told = {(section, key): value for section, key, value in settings(render(PLAIN))}
    assert told["Service", "Type"] == "notify"  # a start is done when the home is served
    assert told["Service", "Restart"] == "on-failure" and told["Service", "RestartPreventExitStatus"] == "2"
    assert told["Install", "WantedBy"] == "default.target"


@pytest.mark.parametrize("value", HOSTILE)
def test_hostile_values_reach_the_daemon_as_they_are(value: str) -> None:
    facts = replace(PLAIN, home=value, path=f"/bin:{value}")
    told = render(facts)
    assert environment(told) == {"ACPMUX_HOME": value, "PATH": f"/bin:{value}"}
    assert settings(render(PLAIN))[:4] == settings(told)[:4]
    assert read(told) == facts


@given(values, values)
def test_any_text_is_one_value_and_is_read_back(home: str, path: str) -> None:
    facts = replace(PLAIN, home=home, path=path)
    told = render(facts)
    assert environment(told) == {"ACPMUX_HOME": home, "PATH": path}
    assert len(settings(told)) == len(settings(render(PLAIN)))
    assert read(told) == facts


@pytest.mark.parametrize("program", ["/a b/python", "/100%/python", "/$HOME/python", "/ü/python"])
def test_interpreter_is_taken_as_it_is(program: str) -> None:
    told = render(replace(PLAIN, program=program))
    (start,) = (value for _, key, value in settings(told) if key == "ExecStart")
    assert words(start)[0] == f":{program}"  # ':' leaves $ alone
    assert read(told) == replace(PLAIN, program=program)


@pytest.mark.parametrize(
    ("facts", "name"),
    [
        (replace(PLAIN, program='/"/python'), "this Python's path"),
        (replace(PLAIN, program="/'/python"), "this Python's path"),
        (replace(PLAIN, program="/\\/python"), "this Python's path"),
        (replace(PLAIN, program="/\n/python"), "this Python's path"),
        (replace(PLAIN, home="/\udcff"), "ACPMUX_HOME"),
        (replace(PLAIN, path="/\udcff"), "PATH"),
    ],
)
def test_what_systemd_can_not_take_is_refused_by_name(facts: Facts, name: str) -> None:
    with pytest.raises(UsageFault, match=f"^{name} holds"):
        render(facts)


@pytest.mark.parametrize("text", ["", "\0", "[Service]\nExecStart=\n", "ExecStart", '[Service]\nExecStart="\n'])
def test_text_that_is_no_unit_of_ours_is_read_without_a_fault(text: str) -> None:
    assert read(text) is None or read(text) == Facts('"', "", "")


def test_unit_somebody_wrote_by_hand_is_understood() -> None:
    assert read("[Service]\nExecStart=-/usr/bin/acpmux daemon run\n") == Facts("/usr/bin/acpmux", "", "")


def test_units_are_kept_where_systemd_looks() -> None:
    assert manager({"XDG_CONFIG_HOME": "/x"}).file == "/x/systemd/user/acpmux.service"
    assert manager({}).file.endswith("/.config/systemd/user/acpmux.service")
