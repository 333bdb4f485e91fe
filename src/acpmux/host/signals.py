"""Every signal acpmux ever sends. Its one rule: only to proven identities.

A process is opened by pidfd first and its start time read again after that, so a pid that was used again is never hit
(pidfd_open(2)). A group is signalled only while its leader is our own unreaped child, so the group id can't be
anybody else's.
"""

import os
import signal
from typing import NamedTuple

from acpmux.census.table import identity_of
from acpmux.census.verdict import command_text
from acpmux.model.process import Blocker, Identity, Row


class Target(NamedTuple):
    """One process that may be signalled, by its open pidfd."""

    identity: Identity
    fd: int
    command: str


def open_target(row: Row) -> Target | None:
    """None when the process is gone, or another one has its pid."""
    return _open(row.identity, command_text(row.argv))


def open_targets_of(blockers: tuple[Blocker, ...]) -> list[Target]:
    """Those in the way that still run, opened to be watched."""
    found = (_open(Identity(blocker.pid, blocker.start), blocker.command) for blocker in blockers)
    return [target for target in found if target is not None]


def _open(identity: Identity, command: str) -> Target | None:
    if identity.pid <= 1 or identity.pid == os.getpid():
        return None
    try:
        fd = os.pidfd_open(identity.pid)
    except OSError:
        return None
    if identity_of(identity.pid) != identity:
        os.close(fd)
        return None
    return Target(identity, fd, command)


def send(target: Target, number: int) -> bool:
    """False when the process is gone already."""
    try:
        signal.pidfd_send_signal(target.fd, number)
    except OSError:
        return False
    return True


def send_group(leader: Identity, number: int) -> None:
    """Signals the group that our own child `leader` leads.

    The caller has not reaped it, so its pid is its own still.
    """
    if leader.pid <= 1 or leader.pid in (os.getpid(), os.getpgrp()):
        return
    try:
        if os.getpgid(leader.pid) == leader.pid:
            os.killpg(leader.pid, number)
    except OSError:
        return


def kill_child(pid: int) -> None:
    """Kills and reaps a child of our own that nobody else can have reaped."""
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        pass
    try:
        os.waitpid(pid, 0)
    except OSError:
        pass
