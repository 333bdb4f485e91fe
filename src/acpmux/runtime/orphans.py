"""Hosts whose daemon is gone: until they can be adopted, a new daemon ends their harnesses by row 6 of SPEC section 6.

A held lock, never a pid, says that a host lives.
"""

import asyncio
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from acpmux.errors import AcpmuxError
from acpmux.host import record
from acpmux.model.ids import HostSeq
from acpmux.paths import Paths
from acpmux.runtime.hostlink import UnixHostLink

LINK_BUDGET_S = 5.0  # a living host answers at once
END_BUDGET_S = 15.0  # also waits out a retirement under way
LEFT_BUDGET_S = 10.0  # TERM, 300 ms, KILL


class _Deaf:
    """Nobody hears what an orphan still says: its session's outcome is unknown and written so."""

    def line(self, host_seq: HostSeq, data: bytes) -> None: ...
    def exited(self, header: Mapping[str, Any]) -> None: ...
    def freed(self) -> None: ...
    def lost(self, reason: str) -> None: ...


async def end_orphans(paths: Paths) -> list[tuple[str, str, str]]:
    """Ends every host of this home and what runs under it. Returns (host id, session id, how) of each."""
    folders = sorted(folder for folder in paths.hosts.iterdir() if folder.is_dir())
    return list(await asyncio.gather(*(_end(folder) for folder in folders)))


async def _end(folder: Path) -> tuple[str, str, str]:
    told = await asyncio.to_thread(record.read_record, str(folder)) or {}
    session_id = str(told.get("sessionId", "?"))
    how = "gone"
    if not await asyncio.to_thread(record.lock_is_free, str(folder)):
        how = await _ask(told)
    # whoever is left of a host that crashed, proven by identity and by the host's mark in its environment
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "acpmux.host.orphan", str(folder), stdin=asyncio.subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(LEFT_BUDGET_S):
            await process.wait()
    except TimeoutError:
        return folder.name, session_id, "stuck"
    await asyncio.to_thread(shutil.rmtree, folder, True)
    return folder.name, session_id, how


async def _ask(told: Mapping[str, Any]) -> str:
    gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    try:
        async with asyncio.timeout(LINK_BUDGET_S):
            _, link = await asyncio.get_running_loop().create_unix_connection(
                lambda: UnixHostLink(_Deaf(), str(told.get("token")), lambda: gone), str(told.get("socket"))
            )
            await link.welcomed(LINK_BUDGET_S)
        await link.request("end", END_BUDGET_S, all=False)
        gone.set_result(None)
        await link.close()
    except (OSError, TimeoutError, AcpmuxError) as error:
        return f"not ended: {error}"
    return "ended"
