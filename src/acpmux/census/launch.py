"""The MCP servers one launch names, read once just before the spawn (SPEC section 3).

Read in a forked child that can be ended, since a file system may hang for ever; what the child reads goes back as JSON.
"""

import json
import os
import select
from collections.abc import Callable
from typing import NamedTuple

from acpmux.census.identity import Resolved
from acpmux.model.process import LaunchRecord, Server

BUDGET_S = 3.0  # SPEC section 3; a local file takes microseconds, a network home a second


class Launch(NamedTuple):
    """The record, and by server name what was looked up for it."""

    record: LaunchRecord
    resolved: dict[str, Resolved]


def read_launch(
    servers: tuple[Server, ...],
    path: str,
    cwd: str,
    end_child: Callable[[int], None],
    budget_s: float = BUDGET_S,
) -> Launch:
    """The record of a launch with these servers. `end_child` kills and reaps the reading child by its pid."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        _child(writer, servers, path, cwd)
    os.close(writer)
    try:
        data = _gather(reader, budget_s)
    finally:
        os.close(reader)
        end_child(pid)
    if data is None:
        text = f"the configuration could not be read within {budget_s:g} s"
        return Launch(LaunchRecord(servers, (text,), timed_out=True), {})
    told = json.loads(data)
    resolved = {name: Resolved(found, tuple(shebang)) for name, (found, shebang) in told.items()}
    return Launch(LaunchRecord(servers), resolved)


def _child(writer: int, servers: tuple[Server, ...], path: str, cwd: str) -> None:
    try:
        told = {server.name: resolve(server.command, path, cwd) for server in servers}
        data = json.dumps(told).encode()
        while data:
            data = data[os.write(writer, data) :]
    finally:
        os._exit(0)


def _gather(reader: int, budget_s: float) -> bytes | None:
    """Everything until the child closes its end, None when that takes too long."""
    parts: list[bytes] = []
    while True:
        ready, _, _ = select.select([reader], [], [], budget_s)
        if not ready:
            return None
        chunk = os.read(reader, 65536)
        if not chunk:
            return b"".join(parts) or None
        parts.append(chunk)


def resolve(command: str, path: str, cwd: str) -> tuple[str | None, list[str]]:
    """Where a command is, as the harness would find it, and the interpreter its first line names."""
    for candidate in _candidates(command, path, cwd):
        if os.access(candidate, os.X_OK) and os.path.isfile(candidate):
            return candidate, shebang(candidate)
    return None, []


def _candidates(command: str, path: str, cwd: str) -> list[str]:
    if "/" in command:
        return [os.path.join(cwd, command)]
    return [os.path.join(folder or cwd, command) for folder in path.split(":")]


def shebang(file_path: str) -> list[str]:
    """The words of the first line behind `#!`, with `env` left out as it leaves itself out."""
    try:
        with open(file_path, "rb") as file:
            line = file.readline(512)
    except OSError:
        return []
    if not line.startswith(b"#!"):
        return []
    words = line[2:].strip().decode("utf-8", "replace").split(None, 1)
    if words and words[0].rsplit("/", 1)[-1] == "env":
        words = words[1].removeprefix("-S ").split() if len(words) > 1 else []
    return words
