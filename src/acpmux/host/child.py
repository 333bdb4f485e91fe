"""The spawn of the harness: a process group of its own in the host's session, and never reaped before the end.

A group, not a session: a harness that was stopped by a host that then died would stay stopped for ever in a session
of its own, while
an orphaned group in this one is continued by the kernel (setpgid(2)).
"""

import errno
import fcntl
import os
import signal
from collections.abc import Callable
from typing import NamedTuple

from acpmux.census.table import identity_of
from acpmux.host.spec import Spec
from acpmux.model.process import Identity

_PIPE_BYTES = 1024 * 1024  # a burst of updates fits without waking the host for each
_F_SETPIPE_SZ = 1031


class SpawnFailed(Exception):
    """The harness could not be started; the text says why and what to look at."""


class Child(NamedTuple):
    identity: Identity
    pidfd: int
    stdin: int
    stdout: int
    stderr: int


def spawn(spec: Spec, known: Callable[[Identity], None]) -> Child:
    """Starts the harness, once `known` has written down who it will be: none runs that no record names.

    Raises: SpawnFailed; OSError of `known`. Nothing was started then.
    """
    in_read, in_write = os.pipe()
    out_read, out_write = os.pipe()
    err_read, err_write = os.pipe()
    failed_read, failed_write = os.pipe()
    go_read, go_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(go_write)  # else it would not see the end of its host
        _become(spec, (in_read, out_write, err_write), go_read, failed_write)
    for fd in (in_read, out_write, err_write, failed_write, go_read):
        os.close(fd)
    try:
        os.setpgid(pid, pid)  # whoever of the two comes first; the other call changes nothing
    except OSError:
        pass
    identity = identity_of(pid) or Identity(pid, 0)
    try:
        known(identity)
        os.write(go_write, b"g")
    except OSError:
        for fd in (go_write, in_write, out_read, err_read, failed_read):
            os.close(fd)
        os.waitpid(pid, 0)
        raise
    os.close(go_write)
    with os.fdopen(failed_read, "rb") as file:
        failure = file.read()
    if failure:
        os.waitpid(pid, 0)
        raise SpawnFailed(failure.decode("utf-8", "replace"))
    for fd in (in_write, out_read, err_read):
        os.set_blocking(fd, False)
    try:
        fcntl.fcntl(out_read, _F_SETPIPE_SZ, _PIPE_BYTES)
    except OSError:
        pass  # a user's pipe quota is spent; the default size works too
    return Child(identity, os.pidfd_open(pid), in_write, out_read, err_read)


def _become(spec: Spec, stdio: tuple[int, int, int], go: int, failed: int) -> None:
    """In the child: ends in exec when it may go, or tells why not. Every other descriptor is close-on-exec."""
    where = "group"
    try:
        os.setpgid(0, 0)
        if not os.read(go, 1):
            os._exit(127)  # its host could not write it down, or has died
        for number, fd in enumerate(stdio):
            os.dup2(fd, number)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        where = "folder"
        os.chdir(spec.cwd)
        where = "program"
        os.execvpe(spec.command[0], spec.command, spec.env)
    except OSError as error:
        os.write(failed, _why(spec, where, error).encode("utf-8", "replace"))
    finally:
        os._exit(127)


def _why(spec: Spec, where: str, error: OSError) -> str:
    if where == "folder":
        return f"the session's folder {spec.cwd} can't be entered: {os.strerror(error.errno or 0)}"
    program = spec.command[0]
    if error.errno == errno.ENOENT and "/" not in program:
        return f"the program {program!r} is not on PATH"
    return f"the program {program} can't be run: {os.strerror(error.errno or 0)}"
