from dataclasses import replace

import pytest

from acpmux.units import launchd, systemd
from acpmux.units.unit import Facts, Manager, State, is_sealed, judge

MINE = Facts("/opt/acpmux/bin/python", "/home/u/state", "/usr/bin:/bin")
managers = pytest.mark.parametrize("manager", [systemd.manager({}), launchd.manager(501)], ids=lambda one: one.name)


@managers
def test_what_was_just_written_is_current_whatever_the_shells_path(manager: Manager) -> None:
    text = manager.render(MINE)
    assert judge(manager, text, MINE) is State.CURRENT
    assert judge(manager, text, replace(MINE, path="/elsewhere")) is State.CURRENT
    assert judge(manager, None, MINE) is State.NONE


@managers
def test_another_interpreter_makes_it_old_and_another_home_somebody_elses(manager: Manager) -> None:
    text = manager.render(MINE)
    assert judge(manager, text, replace(MINE, program="/new/python")) is State.OLD
    assert judge(manager, text, replace(MINE, home="/other")) is State.ELSEWHERE


@managers
def test_every_edit_is_seen(manager: Manager) -> None:
    text = manager.render(MINE)
    lines = text.splitlines(keepends=True)
    assert is_sealed(text)
    for number in range(len(lines)):
        without = "".join(lines[:number] + lines[number + 1 :])
        assert judge(manager, without, MINE) is State.EDITED
    for edited in (text + "\n", text.replace("/usr/bin", "/usr/bin:/x"), "", "\ufffd"):
        assert judge(manager, edited, MINE) is State.EDITED


@managers
def test_value_that_looks_like_a_seal_is_no_seal(manager: Manager) -> None:
    facts = replace(MINE, home="/acpmux daemon install wrote this: 0123456789abcdef")
    text = manager.render(facts)
    assert judge(manager, text, facts) is State.CURRENT
    assert manager.read(text) == facts
