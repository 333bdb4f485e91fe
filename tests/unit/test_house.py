"""The house's own rules: who may import whom, how long things are, and that each rule can fail."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src/acpmux"

# a room imports only rooms on lower floors, and its own; top-level modules are rooms of one
FLOORS = {
    "": 0,
    "errors": 0,
    "untyped": 0,
    "durations": 0,
    "places": 0,
    "model": 0,
    "paths": 1,
    "census": 1,
    "rules": 1,
    "wire": 1,
    "agents": 1,
    "units": 1,
    "ports": 2,
    "client": 2,
    "runtime": 3,
    "store": 3,
    "host": 2,
    "hub": 4,
    "server": 5,
    "daemon": 6,
    "cli": 7,
    "__main__": 8,
}
PURE = ("asyncio", "socket", "subprocess", "sqlite3", "threading", "time", "random", "logging")
# (importer prefix, forbidden module prefixes, modules excepted)
BANS: list[tuple[str, tuple[str, ...], tuple[str, ...]]] = [
    ("model", (*PURE, "os"), ()),
    ("rules", (*PURE, "os", "acpmux.wire"), ()),
    ("wire", (*PURE, "acpmux.rules"), ()),
    ("census", (*PURE, "acpmux"), ("census.table", "census.launch", "census.peers", "census.ps", "census.sockets")),
    ("units", PURE, ()),
    ("hub", ("acpmux.runtime", "acpmux.store", "acpmux.host", "acpmux.server", "sqlite3", "os", "time"), ()),
    ("cli", ("acpmux.hub", "acpmux.store", "acpmux.runtime", "acpmux.host", "acpmux.server", "asyncio", "textual"), ()),
    ("client", ("asyncio", "acpmux.hub", "acpmux.runtime"), ()),
    ("host", ("asyncio", "acpmux", "subprocess", "logging", "dataclasses", "msgspec", "threading"), ()),
    ("", ("textual",), ("tui",)),
    ("", ("sqlite3",), ("store",)),
]
HOST_MAY = ("acpmux.model.process", "acpmux.wire.hostframe", "acpmux.census", "acpmux.host")
CENSUS_MAY = ("acpmux.model.process", "acpmux.census")
CALLS = {  # a call, and the one place for it
    "asyncio.create_task": ("runtime.tasks",),
    "asyncio.sleep": ("runtime.clock",),
    "time.monotonic": (
        "runtime.clock",
        "host",
        "census.table",
        "census.launch",
        "census.ps",
        "client",
        "cli",
        "agents",
    ),
    "os.kill": ("host.signals",),
    "os.killpg": ("host.signals",),
    "signal.pidfd_send_signal": ("host.signals",),
}
MODULE_LINES = 400
FUNCTION_LINES = 60


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(SRC.rglob("*.py")):
        name = ".".join(path.relative_to(SRC).with_suffix("").parts).removesuffix("__init__").rstrip(".")
        yield name, ast.parse(path.read_text())


def imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module
            if node.module == "acpmux" or FLOORS.get(node.module.removeprefix("acpmux.").split(".")[0]) is not None:
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


def room(module: str) -> str:
    return module.removeprefix("acpmux").lstrip(".").split(".")[0]


def within(module: str, prefixes: tuple[str, ...]) -> bool:
    return any(module == p or module.startswith(p + ".") for p in prefixes)


def broken_floors(name: str, tree: ast.Module) -> list[str]:
    own = room(name)
    found: list[str] = []
    for target in imports(tree):
        if not target.startswith("acpmux.") or (own == "cli" and target.startswith("acpmux.daemon")):
            continue  # `daemon run` is the one lazy way from a front end into the daemon
        there = room(target)
        if there in FLOORS and there != own and FLOORS[there] >= FLOORS[own] and own != "client":
            found.append(f"{name} imports {target}")
    return found


def broken_bans(name: str, tree: ast.Module) -> list[str]:
    found: list[str] = []
    for importer, forbidden, excepted in BANS:
        if importer and not within(name, (importer,)):
            continue
        if within(name, excepted):
            continue
        for target in imports(tree):
            allowed = HOST_MAY if importer == "host" else CENSUS_MAY if importer == "census" else ()
            if within(target, forbidden) and not within(target, allowed):
                if importer in ("host", "census") and target == "acpmux":
                    continue
                if importer == "host" and any(a.startswith(target + ".") for a in HOST_MAY):
                    continue
                if importer == "census" and any(a.startswith(target + ".") for a in CENSUS_MAY):
                    continue
                found.append(f"{name} imports {target}")
    return found


def broken_calls(name: str, tree: ast.Module) -> list[str]:
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            places = CALLS.get(f"{node.value.id}.{node.attr}")
            if places is not None and not within(name, places):
                found.append(f"{name}:{node.lineno} uses {node.value.id}.{node.attr}")
    return found


def work_at_import(name: str, tree: ast.Module) -> list[str]:
    """Calls of a module's own body that touch the world."""
    world = {"open", "print", "connect", "socket", "run", "Popen", "mkdir", "listdir"}
    found: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.Expr | ast.Assign) and isinstance(node.value, ast.Call):
            function = node.value.func
            called = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            if called in world:
                found.append(f"{name}:{node.lineno} calls {called}")
    return found


CHECKS = [broken_floors, broken_bans, broken_calls, work_at_import]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_no_module_breaks_the_house(check: object) -> None:
    assert callable(check)
    assert [fault for name, tree in modules() for fault in check(name, tree)] == []


@pytest.mark.parametrize(
    ("check", "name", "code"),
    [
        (broken_floors, "hub.actor", "from acpmux.server.unix import UnixServer"),
        (broken_floors, "model.ids", "import acpmux.rules.idle"),
        (broken_bans, "rules.idle", "import time"),
        (broken_bans, "rules.idle", "from acpmux.wire import acp"),
        (broken_bans, "host.loop", "from acpmux.errors import AcpmuxError"),
        (broken_bans, "census.verdict", "import threading"),
        (broken_bans, "hub.actor", "from acpmux.store.log import SqliteLog"),
        (broken_bans, "cli.list", "import asyncio"),
        (broken_bans, "hub.hub", "import sqlite3"),
        (broken_calls, "hub.actor", "import asyncio\nasyncio.create_task(x)"),
        (broken_calls, "runtime.launcher", "import os\nos.kill(1, 9)"),
        (broken_calls, "census.table", "import signal\nsignal.pidfd_send_signal(1, 9)"),
        (work_at_import, "model.ids", "x = open('/etc/passwd')"),
    ],
)
def test_each_rule_can_fail(check: object, name: str, code: str) -> None:
    assert callable(check)
    assert check(name, ast.parse(code)) != []


def test_modules_and_functions_stay_short() -> None:
    long: list[str] = []
    for path in sorted(SRC.rglob("*.py")):
        lines = path.read_text().count("\n")
        if lines > MODULE_LINES and path.name != "messages.py":  # two vocabularies, one line a word
            long.append(f"{path.relative_to(SRC)}: {lines} lines")
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno:
                size = node.end_lineno - node.lineno
                if size > FUNCTION_LINES:
                    long.append(f"{path.relative_to(SRC)}:{node.lineno} {node.name}: {size} lines")
    assert long == []


def test_unit_tests_mirror_the_source() -> None:
    here = Path(__file__).parent
    strangers: list[str] = []
    for path in here.rglob("test_*.py"):
        if path.name == "test_house.py":
            continue
        mirrored = SRC / path.relative_to(here).parent / path.name.removeprefix("test_")
        if not mirrored.exists():
            strangers.append(str(path.relative_to(here)))
    assert strangers == []


def test_each_dependency_says_why_it_is_there() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    told = tomllib.loads(text)["project"]
    names = [*told["dependencies"], *told["optional-dependencies"]["dev"]]
    for name in names:
        line = next(line for line in text.splitlines() if f'"{name}"' in line)
        assert re.search(r"# \w+", line), f"{name} has no reason"
