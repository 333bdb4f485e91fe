"""One whole listing of what is under a harness from `ps`, for Unix without /proc (SPEC section 4; ps(1), POSIX).

Its rows are text: words joined by blanks, no start times and no environments. So nothing here proves an identity, and
a server whose words can't be told apart is not known.
"""

import os
import select
import time
from collections.abc import Callable

from acpmux.census.table import CensusError
from acpmux.census.tree import below
from acpmux.model.process import Harness, Listing, Row

COMMAND = ("ps", "-axww", "-o", "pid=,ppid=,pgid=,stat=,args=")
BUDGET_S = 3.0  # over all tries; `ps` takes 0.3 s with 5,000 processes
MAX_BYTES = 64 * 1024 * 1024


def list_harness(harness: Harness, host_pid: int, end_child: Callable[[int], None]) -> Listing:
    """Two listings in a row that agree. `end_child` kills and reaps a `ps` by its pid.

    Raises: CensusError for one that is failed, partial, not UTF-8, oversized or late, and when no two agree.
    """
    until = time.monotonic() + BUDGET_S
    last = set[Row]()  # never a whole listing: that holds the leader
    while True:
        rows = [row for row in parse(*_run(end_child, until)) if not row.zombie]
        if harness.leader.pid not in {row.pid for row in rows}:
            raise CensusError("the agent's first process is gone or has exited")
        under = _under(rows, harness)
        if last == set(under):
            adopted = [row for row in below(rows, host_pid) if row not in last]
            return Listing(tuple(under), tuple(adopted))
        last = set(under)


def _under(rows: list[Row], harness: Harness) -> list[Row]:
    groups = {row.pgid for row in rows if row.pid in harness.own_pids}
    roots = {harness.leader.pid}
    if harness.pgid > 1 and harness.pgid not in groups:
        roots |= {row.pid for row in rows if row.pgid == harness.pgid}
    found = set(roots)
    for root in roots:
        found |= {row.pid for row in below(rows, root)}
    return [row for row in rows if row.pid in found]


def parse(data: bytes, ps_pid: int) -> list[Row]:
    """The rows of one listing, but for `ps` itself. Raises: CensusError."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CensusError(f"ps is not UTF-8 (byte {error.start})") from None
    if not text.endswith("\n"):
        raise CensusError("ps gave a partial listing")
    rows: list[Row] = []
    for line in text[:-1].split("\n"):
        words = line.split(None, 4)
        try:
            pid, ppid, pgid = (int(word) for word in words[:3])
            state = words[3]
        except (ValueError, IndexError):
            raise CensusError("ps gave a line that is not a process") from None
        # one letter, then marks: `l` is a process with more threads, whose main one may have ended
        threads = 2 if "l" in state[1:] else 1
        argv = (words[4].encode(),) if len(words) > 4 else ()
        if pid != ps_pid:
            rows.append(Row(pid, ppid, pgid, 0, 0, state[0], threads, argv, exact=False))
    return rows


def _run(end_child: Callable[[int], None], until: float) -> tuple[bytes, int]:
    """What one `ps` printed, and its pid. Raises: CensusError."""
    reader, writer = os.pipe()
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    actions = [(os.POSIX_SPAWN_DUP2, null, 0), (os.POSIX_SPAWN_DUP2, writer, 1), (os.POSIX_SPAWN_DUP2, null, 2)]
    env = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8"}
    try:
        pid = os.posix_spawnp(COMMAND[0], COMMAND, env, file_actions=actions)
    except OSError as error:
        os.close(reader)
        raise CensusError(f"ps can't be run: {error.strerror}") from None
    finally:
        os.close(writer)
        os.close(null)
    ended = False
    try:
        data = _gather(reader, until)
        status = os.waitpid(pid, 0)[1]
        ended = True
    finally:
        os.close(reader)
        if not ended:
            end_child(pid)
    if status != 0:
        raise CensusError("ps failed")
    return data, pid


def _gather(reader: int, until: float) -> bytes:
    data = bytearray()
    while True:
        if not select.select([reader], [], [], max(0.0, until - time.monotonic()))[0]:
            raise CensusError("ps took too long", retry=True)
        chunk = os.read(reader, 1 << 20)
        if not chunk:
            return bytes(data)
        data += chunk
        if len(data) > MAX_BYTES:
            raise CensusError(f"ps printed over {MAX_BYTES} bytes")
