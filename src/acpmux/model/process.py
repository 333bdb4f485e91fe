"""Processes as values: what a listing shows, what a launch names, what a census says.

NamedTuples and the standard library only: the host imports this module and must stay small.
"""

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple


class Identity(NamedTuple):
    """One process for all time: a pid alone is never evidence, it is reused.

    `start` is field 22 of /proc/PID/stat (clock ticks since boot, proc(5)); it survives exec.
    Where there is no /proc it is 0 and the pair proves nothing.
    """

    pid: int
    start: int


class Row(NamedTuple):
    """One process in one listing. `argv` holds bytes as the kernel has them, also if not UTF-8.

    `marker` is the value of `ACPMUX_MCP` in its environment, None when it has none or the environment
    cannot be read. `tool` is true when it carries a harness's own mark of a tool command.
    `exact` is false where argv was cut from text joined by blanks (`ps`).
    """

    pid: int
    ppid: int
    pgid: int
    sid: int
    start: int
    state: str
    threads: int
    argv: tuple[bytes, ...]
    marker: str | None = None
    tool: bool = False
    exact: bool = True

    @property
    def identity(self) -> Identity:
        return Identity(self.pid, self.start)

    @property
    def zombie(self) -> bool:
        """True when nothing of it runs any more; a main thread that ended while others live on is no zombie."""
        return self.state in ("Z", "X") and self.threads <= 1


class Listing(NamedTuple):
    """Everything under one harness at one moment, whole. Row order means nothing.

    `rows` holds the leader, its tree, its process group and their trees. `adopted` are the live
    children of the host other than the leader: work that left the tree. `tied` are the pids of those
    among `adopted` (or below them) that hold a pipe, socket or terminal whose other end is the harness or the host.
    """

    rows: tuple[Row, ...]
    adopted: tuple[Row, ...] = ()
    tied: frozenset[int] = frozenset()


class Server(NamedTuple):
    """An MCP server that a launch names. `marker` is the value its environment must carry, None when
    it is known by its command line alone (servers of the harness's own configuration)."""

    name: str
    command: str
    args: tuple[str, ...]
    marker: str | None
    source: str


class Launching(NamedTuple):
    """What names the servers: the harness's command, folder and environment, and whose configurations it reads."""

    command: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    configs: tuple[str, ...] = ()


class LaunchRecord(NamedTuple):
    """The MCP servers one launch names, read once before the spawn; a config edited later never changes it.

    `problems` names each source that added nothing, with the reason; `places` is all that was looked at.
    `timed_out` keeps the harness up.
    """

    servers: tuple[Server, ...]
    problems: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    timed_out: bool = False


class CoreRule(NamedTuple):
    """One step of a profile's anatomy: a process that is part of the harness itself.

    It matches a direct child of the leader or of a core process when `program` equals the base name of
    argv[0], and, where given, `script` is the base name of argv[1] (an interpreter's script) or a suffix of its
    path when it holds a "/", and `argument` is one of its arguments. It must be in the leader's OS session.
    """

    program: str
    script: str | None = None
    argument: str | None = None


class Harness(NamedTuple):
    """Whom a census is about: the leader, the profile's anatomy and what was recorded at birth.

    `born` holds the identities that were there when `initialize` was answered, None before MarkCore.
    `launch` is None for a host that has no record. `own_pids` are the daemon and the host, whose groups are never
    the harness's.
    `marker_required` is false where the profile says that the agent drops a server's environment.
    """

    leader: Identity
    pgid: int
    anatomy: tuple[CoreRule, ...]
    born: frozenset[Identity] | None
    launch: LaunchRecord | None
    own_pids: frozenset[int]
    path: str = ""
    marker_required: bool = True


class Role(Enum):
    """What one process is to a harness: the `verdict` of `acpmux ps --json`."""

    HARNESS = "harness"
    SERVER = "server"
    UNDER_SERVER = "under-server"
    OTHER = "other"
    LEFT_RUNNING = "left-running"


class Judged(NamedTuple):
    """One process with what it is; `server` names the configured server it is or runs under."""

    row: Row
    role: Role
    server: str | None


class Blocker(NamedTuple):
    """Who is in the way of a retirement. `command` is cut to 120 bytes and redacted, fit for a log."""

    pid: int
    start: int
    command: str
    why: str


class Clear(NamedTuple):
    """Nothing but the harness and its configured servers runs: it may end. All of `judged` were counted."""

    judged: tuple[Judged, ...]


class Held(NamedTuple):
    """Somebody else is under the harness: it stays up."""

    judged: tuple[Judged, ...]
    blockers: tuple[Blocker, ...]


class Unknown(NamedTuple):
    """Nothing is known: it stays up. `retry` when the doubt passes by itself. `judged` is only to be shown."""

    reason: str
    retry: bool = False
    judged: tuple[Judged, ...] = ()


Verdict = Clear | Held | Unknown
