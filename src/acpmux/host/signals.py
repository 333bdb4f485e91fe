"""Every signal acpmux ever sends. Its one rule: only to proven identities.

A process is opened by pidfd first and its start time read again after that, so a pid that was used again is never hit
(pidfd_open(2)). Only where descriptors have run out, and never in a retirement, the pid itself is signalled right after
that reading. A group is signalled only while its leader is our own unreaped child, so the group id can't be
anybody else's.
"""

import os
import signal
from collections.abc import Iterable
from typing import NamedTuple

from acpmux.census.table import CensusError, read_stat
from acpmux.census.verdict import command_text
from acpmux.model.process import Blocker, Identity, Row

SPARE = 8  # descriptors that stay free: a host that waits for an ending reads /proc and takes links meanwhile
_UNOPENED = -1


class Target(NamedTuple):
    """One process that may be signalled, by its open pidfd.

    Where descriptors have run out it is not `opened`: it is signalled by its pid, its start time read right before.
    """

    identity: Identity
    fd: int
    command: str

    @property
    def opened(self) -> bool:
        return self.fd != _UNOPENED

    @property
    def gone(self) -> bool:
        """True when it is proven to have ended. What can't be read has not."""
        try:
            return not _lives(self.identity)
        except OSError:
            return False


def open_targets(rows: Iterable[Row]) -> list[Target]:
    """Opens everybody before the first signal: children find new parents the moment theirs exits.

    Without those that are gone, or whose pid is another's. Those that no descriptor is left for are in it unopened.
    """
    return _open_all([Target(row.identity, _UNOPENED, command_text(row.argv)) for row in rows])


def open_targets_of(blockers: tuple[Blocker, ...]) -> list[Target]:
    """Those in the way that still run, opened to be watched; none when not all can be."""
    wanted = [Target(Identity(blocker.pid, blocker.start), _UNOPENED, blocker.command) for blocker in blockers]
    targets = _open_all(wanted)
    if all(target.opened for target in targets):
        return targets
    close(targets)
    return []


def _open_all(wanted: list[Target]) -> list[Target]:
    opened: list[Target | None] = []
    try:
        for target in wanted:
            opened.append(_open(target))
        _need_spare()
    except OSError:
        kept = max(0, len(opened) - SPARE)
        close(target for target in opened[kept:] if target is not None)
        opened[kept:] = wanted[kept:]
    return [target for target in opened if target is not None]


def _open(target: Target) -> Target | None:
    """Raises: OSError when it may live and can't be opened."""
    pid = target.identity.pid
    if pid <= 1 or pid == os.getpid():
        return None
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    try:
        if _lives(target.identity):
            return target._replace(fd=fd)
    except OSError:
        os.close(fd)
        raise
    os.close(fd)
    return None


def _lives(identity: Identity) -> bool:
    """Raises: OSError when that can't be told."""
    try:
        stat = read_stat(identity.pid)
    except CensusError as error:
        raise OSError(error.reason) from None
    return stat is not None and not stat.zombie and stat.start == identity.start


def _need_spare() -> None:
    """Raises: OSError when fewer than SPARE descriptors are free."""
    taken: list[int] = []
    try:
        for _ in range(SPARE):
            taken.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    finally:
        for fd in taken:
            os.close(fd)


def close(targets: Iterable[Target]) -> None:
    for target in targets:
        if target.opened:
            os.close(target.fd)


def send(target: Target, number: int) -> bool:
    """False when the process is gone already."""
    try:
        if target.opened:
            signal.pidfd_send_signal(target.fd, number)
        elif _lives(target.identity):
            os.kill(target.identity.pid, number)
        else:
            return False
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
