"""One whole listing of what is under a harness, from /proc, or none (SPEC section 4).

A process that forks itself onward hides from a single listing, and from two that agree. So two equal ones count
only when the kernel's
last pid did not move between them: then nothing was born that either could have missed. Sources: proc(5).
"""

import os
import time
from collections.abc import Collection

from acpmux.census import peers
from acpmux.census.tree import below
from acpmux.model.process import Harness, Identity, Listing, Role, Row

WINDOW_S = 0.100  # tries for one whole listing while the harness runs
WINDOW_FROZEN_S = 0.030  # the same while it is stopped: nothing stays frozen for long
MAX_ARGV_BYTES = 4 * 1024 * 1024  # the kernel's own limit for one exec is 2 MiB by default
MAX_ENVIRON_BYTES = 4 * 1024 * 1024
ARGV_CHARS = 4096  # what is shown of a command
MARKER = b"ACPMUX_MCP="
FIRST_PROCESS = "/proc/1/stat"  # root's on nearly every machine, so the first to be hidden
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class CensusError(Exception):
    """There is no whole listing. `retry`: the doubt passes by itself (a busy moment, an exec under way)."""

    def __init__(self, reason: str, retry: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry = retry


class Stat:
    """The fields of /proc/PID/stat a listing needs."""

    __slots__ = ("pgid", "pid", "ppid", "sid", "start", "state", "threads")

    def __init__(self, pid: int, data: bytes) -> None:
        # the name is in parentheses and may hold any byte: the fields begin behind the last one
        fields = data[data.rindex(b")") + 2 :].split()
        self.pid = pid
        self.state = fields[0].decode("ascii", "replace")
        self.ppid, self.pgid, self.sid = int(fields[1]), int(fields[2]), int(fields[3])
        self.threads = int(fields[17])
        self.start = int(fields[19])

    @property
    def key(self) -> tuple[int, int, int, int]:
        return (self.pid, self.start, self.ppid, self.pgid)

    @property
    def zombie(self) -> bool:
        return self.state in ("Z", "X") and self.threads <= 1


def list_harness(harness: Harness, host_pid: int, frozen: bool = False, with_adopted: bool = True) -> Listing:
    """Everything under the harness, and what left its tree for the host.

    Raises: CensusError when it is not whole: the leader missing, a zombie or another process; the table moving
    through all tries;
    anything unreadable; an empty argv during an exec.
    """
    deadline = time.monotonic() + (WINDOW_FROZEN_S if frozen else WINDOW_S)
    last = "the process table would not hold still"
    while True:
        try:
            found = _stable(harness, host_pid)
            if found is not None:
                return _described(harness, host_pid, found, with_adopted)
        except CensusError as error:
            if not error.retry:
                raise
            last = error.reason
        if time.monotonic() >= deadline:
            raise CensusError(last, retry=True)


# ------------------------------------------------------------ the double listing


def _stable(harness: Harness, host_pid: int) -> dict[int, Stat] | None:
    """Two equal listings inside one window without a birth on the machine, else None."""
    before = last_pid()
    first = _collect(harness, host_pid)
    second = _collect(harness, host_pid)
    if last_pid() != before:
        return None
    if {s.key for s in first.values()} != {s.key for s in second.values()}:
        return None
    return second


def last_pid() -> bytes:
    """The last pid the kernel gave away, of a process or a thread (proc_loadavg(5))."""
    try:
        with open("/proc/loadavg", "rb", buffering=0) as file:
            return file.read(256).split()[-1]
    except (OSError, IndexError) as error:
        raise CensusError(f"/proc is not readable: {error}") from None


def _collect(harness: Harness, host_pid: int) -> dict[int, Stat]:
    """One pass: group members first, then the trees, the leader's and the host's own children last."""
    roots = _group_members(harness)
    found: dict[int, Stat] = {}
    missing: list[int] = []
    for pid in [*roots, harness.leader.pid, host_pid]:
        _walk(pid, found, missing)
    if missing:  # it ended this moment, or it is somebody else's and hidden from us
        raise CensusError(f"process {missing[0]} is listed but can't be looked at", retry=True)
    leader = found.get(harness.leader.pid)
    if leader is None or leader.start != harness.leader.start:
        raise CensusError("the agent's first process is gone")
    if leader.zombie:
        raise CensusError("the agent's first process has exited")
    found.pop(host_pid, None)
    return {pid: stat for pid, stat in found.items() if not stat.zombie}


def _group_members(harness: Harness) -> list[int]:
    """Every pid in the harness's own process group, also one whose parent is somebody else by now."""
    _check_not_hidden()
    if harness.pgid <= 1 or harness.pgid in {_pgid(pid) for pid in harness.own_pids}:
        return []
    try:
        names = os.listdir("/proc")
    except OSError as error:
        raise CensusError(f"/proc is not readable: {error}") from None
    return [int(name) for name in names if name.isdigit() and _pgid(int(name)) == harness.pgid]


def _pgid(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except OSError:
        return -1


def _check_not_hidden() -> None:
    """Raises: CensusError where /proc shows a user only their own processes (hidepid, proc(5))."""
    try:
        with open(FIRST_PROCESS, "rb", buffering=0):
            return
    except OSError:
        raise CensusError("/proc hides the processes of other users (its hidepid option)") from None


def _walk(pid: int, found: dict[int, Stat], missing: list[int]) -> None:
    """Adds a process and all below it; children that can't be found are `missing`."""
    pending = [pid]
    while pending:
        current = pending.pop()
        if current in found:
            continue
        stat = read_stat(current)
        if stat is None:
            if current != pid:
                missing.append(current)
            continue
        found[current] = stat
        pending += children(current)


def read_stat(pid: int) -> Stat | None:
    """None when there is no such process. Raises: CensusError for one that can't be read."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            return Stat(pid, file.read(4096))
    except (FileNotFoundError, ProcessLookupError):
        return None
    except (OSError, ValueError, IndexError) as error:
        raise CensusError(f"process {pid} can't be read: {error}") from None


def children(pid: int) -> list[int]:
    """The children of every thread.

    They belong to the thread that forked them, and a walk of main threads alone misses some.
    """
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            try:
                with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                    found += [int(child) for child in file.read().split()]
            except (FileNotFoundError, ProcessLookupError):
                continue  # the thread ended; its children went to another one, which the second listing shows
    except (FileNotFoundError, ProcessLookupError):
        return found
    except OSError as error:
        raise CensusError(f"the children of process {pid} can't be read: {error}") from None
    return found


# ------------------------------------------------------------ what each of them is


def _described(harness: Harness, host_pid: int, found: dict[int, Stat], with_adopted: bool) -> Listing:
    """Adds argv and environment, read once after the window, then checks that every one is still the same process."""
    rows = [_row(stat) for stat in found.values()]
    for row in rows:
        stat = read_stat(row.pid)
        if stat is None or stat.start != row.start:
            raise CensusError(f"process {row.pid} ended during the listing", retry=True)
    under = {harness.leader.pid} | {row.pid for row in below(rows, harness.leader.pid)}
    for row in rows:
        if row.pgid == harness.pgid and row.pid not in under:
            under |= {row.pid} | {r.pid for r in below(rows, row.pid)}
    adopted = tuple(row for row in rows if row.pid not in under)
    tied = frozenset[int]()
    if adopted and with_adopted:
        holders = [row.pid for row in rows if row.pid in under and row.marker is None]
        tied = peers.tied([row.pid for row in adopted], [host_pid, *holders])
    return Listing(tuple(row for row in rows if row.pid in under), adopted, tied)


def _row(stat: Stat) -> Row:
    argv = _argv(stat)
    marker, tool = _marks(stat.pid)
    return Row(
        stat.pid, stat.ppid, stat.pgid, stat.sid, stat.start, stat.state, stat.threads, argv, marker, tool
    )  # fmt: skip


def _argv(stat: Stat) -> tuple[bytes, ...]:
    data = _read(f"/proc/{stat.pid}/cmdline", MAX_ARGV_BYTES)
    if data is None:
        raise CensusError(f"the command of process {stat.pid} can't be read", retry=True)
    if data == b"":
        if stat.state in ("Z", "X"):
            return ()  # its main thread ended while others live on
        raise CensusError(f"process {stat.pid} shows no command, as during an exec", retry=True)
    return tuple(data.removesuffix(b"\0").split(b"\0"))


def _marks(pid: int) -> tuple[str | None, bool]:
    """The marker's value, and whether a harness marked it as a tool's command. Unreadable is no marker and no tool."""
    data = _read(f"/proc/{pid}/environ", MAX_ENVIRON_BYTES)
    marker, tool = None, False
    for item in (data or b"").split(b"\0"):
        if item.startswith(MARKER):
            marker = item[len(MARKER) :].decode("utf-8", "replace")
        elif item.startswith(b"CLAUDE_PID=") or (item.startswith(b"AI_AGENT=") and item.endswith(b"_agent")):
            tool = True
    return marker, tool


def _read(path: str, limit: int) -> bytes | None:
    """The whole file, None when it is gone, forbidden or over the limit."""
    try:
        with open(path, "rb", buffering=0) as file:
            parts: list[bytes] = []
            size = 0
            while chunk := file.read(65536):
                parts.append(chunk)
                size += len(chunk)
                if size > limit:
                    return None
            return b"".join(parts)
    except OSError:
        return None


# ------------------------------------------------------------ single processes


def identity_of(pid: int) -> Identity | None:
    """Who has this pid now, None for nobody or a zombie."""
    try:
        stat = read_stat(pid)
    except CensusError:
        return None
    return None if stat is None or stat.zombie else Identity(pid, stat.start)


def memory_bytes(pid: int) -> int:
    """Its share of memory (Pss of smaps_rollup), else its resident size, else 0."""
    data = _read(f"/proc/{pid}/smaps_rollup", 65536)
    for line in (data or b"").splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) * 1024
    return rss_bytes(pid)


def rss_bytes(pid: int) -> int:
    data = _read(f"/proc/{pid}/statm", 4096)
    fields = (data or b"").split()
    return int(fields[1]) * _PAGE if len(fields) > 1 else 0


def told(
    row: Row, role: Role, server: str | None = None, ports: list[int] | None = None, chars: int = ARGV_CHARS
) -> dict[str, object]:
    """One process as `acpmux ps` shows it: a row of `_acpmux/census`, its command cut to so many characters in all."""
    argv: list[str] = []
    for part in row.argv:
        if chars <= 0:
            break
        argv.append(part[: 4 * chars].decode("utf-8", "replace")[:chars])
        chars -= len(argv[-1]) + 1
    return {
        "pid": row.pid,
        "ppid": row.ppid,
        "pgid": row.pgid,
        "argv": argv,
        "cut": chars <= 0,
        "verdict": role.value,
        "server": server,
        "rssBytes": rss_bytes(row.pid),
        "startedAtMs": started_at_ms(row.start),
        "ports": ports or [],
    }


def started_at_ms(start: int) -> int:
    """Wall-clock milliseconds at which a process with this start time began."""
    with open("/proc/uptime", "rb") as file:
        uptime_s = float(file.read().split()[0])
    return round((time.time() - uptime_s + start / _TICKS) * 1000)


def boot_id() -> str:
    data = _read("/proc/sys/kernel/random/boot_id", 64)
    return (data or b"").decode("ascii", "replace").strip()


def now_ms() -> int:
    """Monotonic milliseconds, for durations."""
    return round(time.monotonic() * 1000)


def best_effort(host_pid: int) -> list[Row]:
    """Every process below the host that can be read now. For endings that need identities and no certainty."""
    found: dict[int, Stat] = {}
    try:
        _walk(host_pid, found, [])
    except CensusError:
        pass
    found.pop(host_pid, None)
    return [_loose_row(stat) for stat in found.values()]


def row_of(pid: int) -> Row | None:
    """One process as it can be read now, None when it is gone."""
    try:
        stat = read_stat(pid)
    except CensusError:
        return None
    return None if stat is None else _loose_row(stat)


def everybody() -> list[Row]:
    """Every process of the machine that can be read now."""
    rows = (row_of(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return [row for row in rows if row is not None and not row.zombie]


def carriers(items: Collection[bytes]) -> list[Row]:
    """Every process whose environment holds exactly one of these `NAME=value`, but this one and the ones above it.

    Whoever starts an acpmux daemon from inside a session is the parent of what looks; it is not to be found.
    """
    above = _ancestors(os.getpid())
    pids = (int(name) for name in os.listdir("/proc") if name.isdigit())
    rows = (row_of(pid) for pid in pids if pid not in above and carries(pid, items))
    return [row for row in rows if row is not None and not row.zombie]


def _ancestors(pid: int) -> set[int]:
    found: set[int] = set()
    while pid > 0 and pid not in found:
        found.add(pid)
        stat = read_stat(pid)
        pid = stat.ppid if stat else 0
    return found


def carries(pid: int, items: Collection[bytes]) -> bool:
    """True when the process's environment holds exactly one of these `NAME=value`."""
    environ = (_read(f"/proc/{pid}/environ", MAX_ENVIRON_BYTES) or b"").split(b"\0")
    return not set(items).isdisjoint(environ)


def _loose_row(stat: Stat) -> Row:
    data = _read(f"/proc/{stat.pid}/cmdline", MAX_ARGV_BYTES) or b""
    marker, tool = _marks(stat.pid)
    argv = tuple(data.removesuffix(b"\0").split(b"\0")) if data else ()
    return Row(stat.pid, stat.ppid, stat.pgid, stat.sid, stat.start, stat.state, stat.threads, argv, marker, tool)
