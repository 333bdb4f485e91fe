"""Hosts that live and whose session the log does not know: it was the log that was removed or replaced, not their work.

They are named and left alone until somebody asks for their end.
"""

import asyncio
import shutil
from collections.abc import Container
from pathlib import Path
from typing import Any

from acpmux.host import record
from acpmux.paths import Paths
from acpmux.runtime.orphans import end_host
from acpmux.untyped import as_list


async def find(paths: Paths, known: Container[str]) -> list[dict[str, Any]]:
    """{hostId, sessionId, hostPid, pid} of each."""
    return await asyncio.to_thread(_find, paths.hosts, known)


async def end(paths: Paths, known: Container[str]) -> list[dict[str, Any]]:
    """Ends each by row 6 of SPEC section 6. Returns those that could not be ended, with the reason."""
    there = await find(paths, known)
    ends = await asyncio.gather(*(_end(paths.host_folder(row["hostId"])) for row in there))
    return [row | {"reason": how} for row, how in zip(there, ends, strict=True) if how not in ("ended", "gone")]


def _find(hosts: Path, known: Container[str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for folder in sorted(hosts.iterdir()) if hosts.is_dir() else ():
        told = record.read_record(str(folder)) or {}
        session_id = told.get("sessionId")
        # one that is kept ready has no session, and is the pool's
        if session_id and session_id not in known and not record.lock_is_free(str(folder)):
            host, leader = (as_list(told.get(key)) or [None] for key in ("host", "leader"))
            found.append({"hostId": folder.name, "sessionId": session_id, "hostPid": host[0], "pid": leader[0]})
    return found


async def _end(folder: Path) -> str:
    how = await end_host(folder)
    if how in ("ended", "gone"):
        await asyncio.to_thread(shutil.rmtree, folder, True)
    return how
