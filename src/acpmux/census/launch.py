"""The MCP servers one launch names, read once before the harness reads them itself (SPEC section 3).

Read in a forked child that can be ended, since a file system may hang for ever; what the child reads goes back as JSON.
"""

import json
import os
import select
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from acpmux.census.identity import Resolved, Shown, shown
from acpmux.model.process import Launching, LaunchRecord, Server

BUDGET_S = 3.0  # SPEC section 3; a local file takes microseconds, a network home a second


class Launch(NamedTuple):
    """The record, None when there is no telling what it named, and by server name the forms it can show."""

    record: LaunchRecord | None
    forms: dict[str, Shown]


def read_launch(
    given: tuple[Server, ...],
    launching: Launching,
    end_child: Callable[[int], None],
    budget_s: float = BUDGET_S,
) -> Launch:
    """The record of a launch with the servers acpmux gives and those the agent's own configuration names.

    Of one name the given one holds. `end_child` kills and reaps the reading child by its pid.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        _child(writer, given, launching)
    os.close(writer)
    try:
        data = _gather(reader, time.monotonic() + budget_s)
    finally:
        os.close(reader)
        end_child(pid)
    if data is None:
        text = f"the agent's configuration could not be read within {budget_s:g} s"
        return Launch(LaunchRecord(given, (text,), timed_out=True), {})
    try:
        return _decode(data)
    except (ValueError, TypeError, KeyError):
        return Launch(None, {})


def joined(given: Launch, own: Launch) -> Launch:
    """The record of a harness that has read `own` at its start and got `given` with its session."""
    if given.record is None or own.record is None:
        return Launch(None, {})
    names = {server.name for server in given.record.servers}
    record = LaunchRecord(
        (*given.record.servers, *(server for server in own.record.servers if server.name not in names)),
        (*own.record.problems, *given.record.problems),
        own.record.places,
        given.record.timed_out or own.record.timed_out,
    )
    return Launch(record, own.forms | given.forms)


def _child(writer: int, given: tuple[Server, ...], launching: Launching) -> None:
    try:
        data = _encode(given, launching)
        while data:
            data = data[os.write(writer, data) :]
    finally:
        os._exit(0)


def _encode(given: tuple[Server, ...], launching: Launching) -> bytes:
    from acpmux.census import readers  # in the child alone: what it takes goes back with it

    found = readers.read(launching)
    names = {server.name for server in given}
    path = launching.env.get("PATH", os.defpath)
    named = [(server, launching.cwd, path) for server in given]
    named += [one for one in found.named if one.server.name not in names]
    told = {
        "servers": [list(server) for server, _, _ in named],
        "forms": {server.name: _forms(server, cwd, path) for server, cwd, path in named},
        "problems": [*found.problems, *_missing(given, launching.cwd, path)],
        "places": found.places,
    }
    return json.dumps(told).encode()


def _missing(given: tuple[Server, ...], cwd: str, path: str) -> list[str]:
    return [
        f"MCP server {server.name!r}: its program {server.command[:200]!r} is not there"
        for server in given
        if resolve(server.command, path, cwd).path is None
    ]


def _forms(server: Server, cwd: str, path: str) -> Shown:
    return shown(server.command, server.args, lambda command: resolve(command, path, cwd))


def _decode(data: bytes) -> Launch:
    told: dict[str, Any] = json.loads(data)
    servers = servers_of(told["servers"])
    forms = {
        name: Shown(_lines(lines), _lines(scripts), _lines(programs), tuple(titles))
        for name, (lines, scripts, programs, titles) in told["forms"].items()
    }
    return Launch(LaunchRecord(servers, tuple(told["problems"]), tuple(told["places"])), forms)


def servers_of(told: list[Any]) -> tuple[Server, ...]:
    """Servers as JSON carries them. Raises: TypeError, ValueError."""
    return tuple(Server(n, c, tuple(a), m, s) for n, c, a, m, s in told)


def _lines(told: list[list[str]]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(line) for line in told)


def _gather(reader: int, until: float) -> bytes | None:
    """Everything until the child closes its end, None when that takes too long."""
    parts: list[bytes] = []
    while True:
        ready, _, _ = select.select([reader], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            return None
        chunk = os.read(reader, 65536)
        if not chunk:
            return b"".join(parts)
        parts.append(chunk)


def resolve(command: str, path: str, cwd: str) -> Resolved:
    """Where a command is, as the harness would find it, and the interpreter its first line names."""
    for candidate in _candidates(command, path, cwd):
        if os.access(candidate, os.X_OK) and os.path.isfile(candidate):
            return Resolved(candidate, shebang(candidate), os.path.realpath(candidate))
    return Resolved(None)


def _candidates(command: str, path: str, cwd: str) -> list[str]:
    if "/" in command:
        return [os.path.join(cwd, command)]
    return [os.path.join(folder or cwd, command) for folder in path.split(":")]


def shebang(file_path: str) -> tuple[str, ...]:
    """The words of the first line behind `#!`, with `env` left out as it leaves itself out."""
    try:
        with open(file_path, "rb") as file:
            line = file.readline(512)
    except OSError:
        return ()
    if not line.startswith(b"#!"):
        return ()
    words = line[2:].strip().decode("utf-8", "surrogateescape").split(None, 1)
    if words and words[0].rsplit("/", 1)[-1] == "env":
        words = words[1].removeprefix("-S ").split() if len(words) > 1 else []
    return tuple(words)
