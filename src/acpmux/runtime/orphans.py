"""What no link leads to: hosts whose daemon is gone, what a crashed host left, and work that left a session's tree.

A host that can't be adopted is ended by row 6 of SPEC section 6. A held lock, never a pid, says
that a host lives.
"""

import asyncio
import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from acpmux.errors import AcpmuxError
from acpmux.host import record
from acpmux.model.ids import HostSeq
from acpmux.paths import Paths
from acpmux.runtime.hostlink import UnixHostLink

LINK_BUDGET_S = 5.0  # a living host answers at once
END_BUDGET_S = 15.0  # also waits out a retirement under way
LEFT_BUDGET_S = 10.0  # a start of Python, TERM, 300 ms, KILL


class _Deaf:
    """Nobody hears what an orphan still says: its session's outcome is unknown and written so."""

    def line(self, host_seq: HostSeq, data: bytes) -> None: ...
    def exited(self, header: Mapping[str, Any]) -> None: ...
    def ended(self, header: Mapping[str, Any]) -> None: ...
    def freed(self) -> None: ...
    def lost(self, reason: str) -> None: ...


async def end_orphans(paths: Paths, adopted: frozenset[str] = frozenset()) -> list[tuple[str, str, str]]:
    """Ends every host of this home that nobody adopted, and what runs under it.

    Returns (host id, session id, how) of each.
    """
    folders = sorted(folder for folder in paths.hosts.iterdir() if folder.is_dir() and folder.name not in adopted)
    return list(await asyncio.gather(*(_end(folder) for folder in folders)))


async def _end(folder: Path) -> tuple[str, str, str]:
    told = await asyncio.to_thread(record.read_record, str(folder)) or {}
    how = await end_host(folder)
    await asyncio.to_thread(remove, folder)
    return folder.name, str(told.get("sessionId", "?")), how


async def end_host(folder: Path) -> str:
    """Ends the host of this folder if it lives, and whatever is left of its harness. Returns how it went."""
    how = "gone"
    if not await asyncio.to_thread(record.lock_is_free, str(folder)):
        how = await _ask(await asyncio.to_thread(record.read_record, str(folder)) or {})
    return how if await _remains("host", str(folder)) is not None else "stuck"


def remove(folder: Path) -> None:
    """Takes a host's folder away, never from under a host that lives."""
    if record.lock_is_free(str(folder)):
        shutil.rmtree(folder, True)


async def end_left(marks: Sequence[str]) -> list[Any]:
    """Ends the work that left a session's tree and carries one of its marks.

    Returns (pid, start, command, how) of each.
    """
    return json.loads(await _remains("marked", *marks) or b"[]")


def host_program(module: str) -> list[str]:
    """How a module of the host's room is run as a program: isolated, without site packages, from this source tree."""
    stage = f"import sys; sys.path.insert(0, sys.argv.pop(1)); from acpmux.host.{module} import main; main()"
    return [sys.executable, "-I", "-S", "-c", stage, str(Path(__file__).resolve().parents[2])]


async def _remains(*words: str) -> bytes | None:
    """Runs the one program that may end them. None when it took too long: somebody can't be killed."""
    process = await asyncio.create_subprocess_exec(
        *host_program("remains"),
        *words,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(LEFT_BUDGET_S):
            return (await process.communicate())[0]
    except TimeoutError:
        return None


async def _ask(told: Mapping[str, Any]) -> str:
    gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    try:
        async with asyncio.timeout(LINK_BUDGET_S):
            _, link = await asyncio.get_running_loop().create_unix_connection(
                lambda: UnixHostLink(_Deaf(), str(told.get("token")), gone, lambda: gone), str(told.get("socket"))
            )
            await link.welcomed(LINK_BUDGET_S)
        await link.request("end", END_BUDGET_S, all=False)
        gone.set_result(None)
        await link.close()
    except (OSError, TimeoutError, AcpmuxError) as error:
        return f"not ended: {error}"
    return "ended"
