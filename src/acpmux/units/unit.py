"""A service manager as a value, the file it is given, and what a file that is there says."""

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from acpmux.errors import UsageFault

Argv = tuple[str, ...]

UNSEALED = "acpmux daemon install wrote this: " + "0" * 16
_SEAL = re.compile(r"(acpmux daemon install wrote this: )([0-9a-f]{16})")


class State(StrEnum):
    """`edited` is also a file somebody else wrote; `old` is of another installation or version of acpmux."""

    NONE = "none"
    CURRENT = "current"
    OLD = "old"
    EDITED = "edited"
    ELSEWHERE = "elsewhere"  # for another home


@dataclass(frozen=True, slots=True)
class Facts:
    """What a unit runs: the interpreter, the home it serves, the PATH through which agents are found."""

    program: str
    home: str
    path: str


@dataclass(frozen=True, slots=True)
class Manager:
    """How one service manager is told of the daemon.

    `reload` follows each change of the file; `start` is for now and each login, `begin` for now; `show` tells its
    pid; `apply` and `logs` are for a person to type. With `once`, `start` and `stop` fail when they were done already,
    and `show` fails when nothing is loaded.
    """

    name: str
    file: str
    render: Callable[[Facts], str]
    read: Callable[[str], Facts | None]
    reload: tuple[Argv, ...]
    start: Argv
    stop: Argv
    show: Argv
    begin: Argv
    apply: str
    logs: str
    once: bool = False


def judge(manager: Manager, text: str | None, wanted: Facts) -> State:
    """What the text of a unit is to somebody who wants this one. Its PATH may be another: shells differ in theirs."""
    if text is None:
        return State.NONE
    found = manager.read(text)
    if found is None or not is_sealed(text):
        return State.EDITED
    if found.home != wanted.home:
        return State.ELSEWHERE
    return State.CURRENT if manager.render(replace(wanted, path=found.path)) == text else State.OLD


def seal(text: str) -> str:
    """The text with its own digest in place of `UNSEALED`, which stands in a comment above any value."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return _SEAL.sub(rf"\g<1>{digest}", text, count=1)


def is_sealed(text: str) -> bool:
    """Whether nobody changed the text since it was sealed."""
    return _SEAL.search(text) is not None and seal(_SEAL.sub(UNSEALED, text, count=1)) == text


def refuse(facts: Facts, program: str, values: str) -> None:
    """Raises: UsageFault when a manager's file can't hold a fact.

    `program` and `values` are expressions for what the interpreter's path and the two others must not hold.
    """
    told = (("this Python's path", facts.program, program), ("ACPMUX_HOME", facts.home, values))
    for name, value, pattern in (*told, ("PATH", facts.path, values)):
        if re.search(f"[\ud800-\udfff]|{pattern}", value):
            raise UsageFault(f"{name} holds a character that a unit can't: {value!a}")
