"""What a host is told to start: one JSON line on its standard input, never stored."""

import json
import os
from typing import Any, NamedTuple

from acpmux.census.launch import servers_of
from acpmux.model.process import CoreRule, Launching, Server


class Spec(NamedTuple):
    """`configs` are the agents whose own configurations name servers, read at `configs_at`: "start" or "session".

    `direct`: the harness ends with the daemon's link. A host that is kept ready has no session and is direct until one
    takes it. `folder` holds the lock and the record; `socket` is where to
    listen (its path may have to be a short one).
    """

    host_id: str
    session_id: str
    folder: str
    socket: str
    token: str
    command: tuple[str, ...]
    cwd: str
    env: dict[str, str]
    anatomy: tuple[CoreRule, ...]
    servers: tuple[Server, ...]
    configs: tuple[str, ...]
    configs_at: str
    marker_required: bool
    retire_signal: str
    direct: bool
    daemon_pid: int

    @property
    def launching(self) -> Launching:
        return Launching(self.command, self.cwd, self.env, self.configs)


def nameless(host_id: str) -> str:
    """The second address of a host, which no cleaner of folders can take away (abstract sockets, unix(7))."""
    return f"\0acpmux/{os.getuid()}/{host_id}"


def encode(spec: Spec) -> bytes:
    return json.dumps(spec._asdict(), separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> Spec:
    """Raises: ValueError naming what is wrong."""
    told: dict[str, Any] = json.loads(line)
    try:
        told["command"], told["configs"] = tuple(told["command"]), tuple(told["configs"])
        told["anatomy"] = tuple(CoreRule(*rule) for rule in told["anatomy"])
        told["servers"] = servers_of(told["servers"])
        return Spec(**told)
    except (KeyError, TypeError) as error:
        raise ValueError(f"the host's orders are not what this version expects: {error}") from None
