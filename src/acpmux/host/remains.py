"""Ends what no living host owns: a program of its own, since signals are sent by this room alone.

`python -m acpmux.host.remains host FOLDER` ends what a crashed or unreachable host left of its harness. Its proof: the
host's and the leader's pids with their start times in this boot, or the host's own id in a process's environment
together with a server's marker or the leader's process group.

`python -m acpmux.host.remains marked NAME=VALUE...` ends the work that left the tree of a session, found by one of
these marks in its environment, and prints it as JSON: `[[pid, start, command, how], ...]`.
"""

import json
import selectors
import signal
import sys
import time
from collections.abc import Iterable

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
    if not lock_is_free(folder):
        _end([row for row in [table.row_of(int(told["host"][0]))] if row and list(row.identity) == told["host"]], True)
        until = time.monotonic() + UNLOCK_S
        while not lock_is_free(folder):
            if time.monotonic() > until:
                return
            time.sleep(POLL_S)
    leader = Identity(*(int(part) for part in told["leader"]))
    _end(_left_of(leader, str(told["hostId"]), set(told.get("markers") or ())))


def _left_of(leader: Identity, host_id: str, markers: set[str | None]) -> list[Row]:
    """The leader, its group while it leads one, and the marked servers, of this host alone."""
    mark = f"ACPMUX_HOST={host_id}".encode()
    return [
        row
        for row in table.everybody()
        if (row.marker is not None and row.marker in markers)
        or ((row.identity == leader or row.pgid == leader.pid) and table.carries(row.pid, (mark,)))
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
