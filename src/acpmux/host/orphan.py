"""Ends what a crashed host left of its harness: `python -m acpmux.host.orphan FOLDER`.

Its proof: the leader's pid with its start time in this boot, or the host's own id in a process's environment
together with a
server's marker or the leader's process group.
"""

import os
import selectors
import signal
import sys

from acpmux.census import table
from acpmux.host.ending import CUT_GRACE_S, Ending, Outcome, open_targets
from acpmux.host.record import lock_is_free, read_record
from acpmux.host.signals import send
from acpmux.host.timers import Timers
from acpmux.model.process import Identity, Row


def main() -> None:
    folder = sys.argv[1]
    told = read_record(folder)
    if told is None or told.get("bootId") != table.boot_id() or not lock_is_free(folder):
        return
    leader = Identity(*(int(part) for part in told["leader"]))
    targets = open_targets(_remains(leader, str(told["hostId"]), set(told.get("markers") or ())))
    if not targets:
        return
    selector, timers = selectors.DefaultSelector(), Timers()
    over: list[Outcome] = []
    for target in targets:
        send(target, signal.SIGTERM)
        send(target, signal.SIGCONT)
    Ending(targets, CUT_GRACE_S, selector, timers, over.append)
    while not over:
        for key, mask in selector.select(timers.wait_s()):
            key.data(key, mask)
        timers.run_due()


def _remains(leader: Identity, host_id: str, markers: set[str | None]) -> list[Row]:
    """The leader, its group while it leads one, and the marked servers, of this host alone."""
    mark = f"ACPMUX_HOST={host_id}".encode()
    found: list[Row] = []
    for name in os.listdir("/proc"):
        row = table.row_of(int(name)) if name.isdigit() else None
        if row is None:
            continue
        member = row.identity == leader or row.pgid == leader.pid
        if (row.marker is not None and row.marker in markers) or (member and table.carries(row.pid, mark)):
            found.append(row)
    return found


if __name__ == "__main__":
    main()
