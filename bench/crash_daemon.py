"""A daemon that dies right behind a commit: `python bench/crash_daemon.py KIND COUNT`, for `bench/crash.py`.

It ends itself with -9 when the COUNTth record of that kind is on the disk and nobody has heard of it yet.
"""

import os
import signal
import sys
from typing import Any

from acpmux import daemon
from acpmux.model.record import Kind
from acpmux.store.log import SqliteLog


def main() -> int:
    kind, left = Kind(sys.argv[1]), int(sys.argv[2])
    commit = SqliteLog.commit

    async def commit_and_die(self: SqliteLog, session_id: Any, rows: Any, *rest: Any) -> None:
        nonlocal left
        await commit(self, session_id, rows, *rest)
        left -= sum(row.record.kind is kind for row in rows)
        if left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    SqliteLog.commit = commit_and_die
    return daemon.run()


if __name__ == "__main__":
    sys.exit(main())
