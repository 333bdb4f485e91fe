"""What a host is told to start: one JSON line on its standard input, never stored."""

import json
from typing import Any, NamedTuple

from acpmux.model.process import CoreRule, Server


class Spec(NamedTuple):
    """`folder` holds the lock and the record; `socket` is where to listen (its path may have to be a short one)."""

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
    marker_required: bool
    retire_signal: str
    daemon_pid: int


def encode(spec: Spec) -> bytes:
    return json.dumps(spec._asdict(), separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> Spec:
    """Raises: ValueError naming what is wrong."""
    told: dict[str, Any] = json.loads(line)
    try:
        told["command"] = tuple(told["command"])
        told["anatomy"] = tuple(CoreRule(*rule) for rule in told["anatomy"])
        told["servers"] = tuple(Server(n, c, tuple(a), m, s) for n, c, a, m, s in told["servers"])
        return Spec(**told)
    except (KeyError, TypeError) as error:
        raise ValueError(f"the host's orders are not what this version expects: {error}") from None
