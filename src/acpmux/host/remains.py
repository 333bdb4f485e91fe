"""Ends what no living host owns: a program of its own, since signals are sent by this room alone.

`python -m acpmux.host.remains host FOLDER` ends what a crashed or unreachable host left of its harness. Its proof: the
host's and the leader's pids with their start times in this boot; the group of a leader that lives, or of one that is
gone with the host's own id in the environment; a server's marker in the host's OS session and not older than the host.
The record must be that of this folder: a copy of one proves nothing.

`python -m acpmux.host.remains marked NAME=VALUE...` ends the work that left the tree of a session, found by one of
these marks in its environment, and prints it as JSON: `[[pid, start, command, how], ...]`.
"""

import json
import os
import selectors
import signal
import sys
import time
from collections.abc import Iterable
from typing import Any

from acpmux.census import table
from acpmux.host.ending import CUT_GRACE_S, Ending, Outcome, open_targets
from acpmux.host.record import lock_is_free, read_record
from acpmux.host.signals import send
from acpmux.host.timers import Timers
from acpmux.model.process import Identity, Row

UNLOCK_S = 2.0  # a killed process drops its lock when the kernel has torn it down
POLL_S = 0.005


def main() -> None:
    verb, *words = sys.argv[1:]
    if verb == "host":
        _end_host(words[0])
    else:
        print(json.dumps(_end(table.carriers([word.encode() for word in words]))))


def _end_host(folder: str) -> None:
    told = read_record(folder)
    if told is None or told.get("bootId") != table.boot_id() or told.get("outcome") is not None:
        return
    if lock_is_free(folder):
        if told.get("folder") != os.path.realpath(folder):
            return
    else:
        _end([row for row in [table.row_of(int(told["host"][0]))] if row and list(row.identity) == told["host"]], True)
        until = time.monotonic() + UNLOCK_S
        while not lock_is_free(folder):
            if time.monotonic() > until:
                return
            time.sleep(POLL_S)
    if told["leader"] is not None:  # else it was never let go
        _end(_left_of(told))


def _left_of(told: dict[str, Any]) -> list[Row]:
    """The leader, its group, and the marked servers, of this host alone: what left the tree is somebody's work."""
    host, leader = (Identity(*map(int, told[who])) for who in ("host", "leader"))
    mark, markers = f"ACPMUX_HOST={told['hostId']}".encode(), [marker for marker in told.get("markers") or () if marker]
    rows = table.everybody()
    leads = any(row.identity == leader for row in rows)
    return [
        row
        for row in rows
        if row.identity == leader
        or (row.pgid == leader.pid and (leads or table.carries(row.pid, (mark,))))
        or (row.marker in markers and row.sid == host.pid and row.start >= host.start)
    ]


def _end(rows: Iterable[Row], at_once: bool = False) -> Outcome:
    """TERM, 300 ms, KILL, each by identity; returns when all are gone. One that was stopped is continued."""
    selector, timers = selectors.DefaultSelector(), Timers()
    targets = open_targets(rows)
    over: list[Outcome] = []
    for target in targets:
        send(target, signal.SIGKILL if at_once else signal.SIGTERM)
        send(target, signal.SIGCONT)
    Ending(targets, CUT_GRACE_S, selector, timers, over.append)
    while not over:
        for key, mask in selector.select(timers.wait_s()):
            key.data(key, mask)
        timers.run_due()
    return over[0]


if __name__ == "__main__":
    main()
