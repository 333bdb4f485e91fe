"""The file a host is found by, and the lock that proves it lives.

A pid proves nothing; a dropped lock proves death (flock(2)).
"""

import fcntl
import json
import os
from typing import Any, cast

from acpmux.census.table import boot_id, identity_of
from acpmux.host.spec import Spec
from acpmux.model.process import Identity


def take_lock(folder: str) -> int:
    """The descriptor that holds the live lock until this process ends. Raises: OSError when another host holds it."""
    fd = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return fd


def write_record(spec: Spec, leader: Identity | None, outcome: dict[str, Any] | None = None) -> None:
    """Atomically, 0600. No environment and no command is in it; no leader while there is none yet. Raises: OSError."""
    told = {
        "version": 1,
        "hostId": spec.host_id,
        "sessionId": spec.session_id,
        "folder": os.path.realpath(spec.folder),
        "socket": spec.socket,
        "token": spec.token,
        "host": list(identity_of(os.getpid()) or (os.getpid(), 0)),
        "leader": leader and list(leader),
        "markers": [server.marker for server in spec.servers],
        "bootId": boot_id(),
        "outcome": outcome,
    }
    path = os.path.join(spec.folder, "record.json")
    fd = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(json.dumps(told).encode())
    os.replace(path + ".new", path)


def read_record(folder: str) -> dict[str, Any] | None:
    """None when there is none, or none that can be read."""
    try:
        with open(os.path.join(folder, "record.json"), "rb") as file:
            told = json.loads(file.read(1_000_000))
    except (OSError, ValueError):
        return None
    return cast("dict[str, Any]", told) if isinstance(told, dict) else None


def lock_is_free(folder: str) -> bool:
    """True when no host lives behind this folder."""
    try:
        fd = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True
