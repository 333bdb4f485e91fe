"""Reads, each on a connection beside the writer's.

A read of large records must keep nobody waiting: on the writer's own connection it made every commit of every session
wait some 260 times as long (bench/store.py).
"""

import asyncio
import queue
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from acpmux.errors import StoreError
from acpmux.store.connect import connect_reader
from acpmux.store.salvage import is_damage, mark

READERS = 3  # one that pages through large records leaves two for short reads; a thread begins with its first read

_T = TypeVar("_T")


class Readers:
    """A few threads and as many connections; more reads than that wait in order."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pool = ThreadPoolExecutor(READERS, thread_name_prefix="acpmux-read")
        self._free: queue.SimpleQueue[sqlite3.Connection] = queue.SimpleQueue()

    async def do(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Raises: StoreError naming the file."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._read, work)

    def _read(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        try:
            db = self._connection()
            try:
                return work(db)
            finally:
                self._free.put(db)
        except (sqlite3.Error, ValueError) as error:
            if is_damage(error):
                mark(self._path)
                raise StoreError(
                    f"{self._path} is damaged here ({error}). To save what can be read: acpmux daemon shutdown, "
                    "then any command; agents run on"
                ) from error
            raise StoreError(f"{self._path} can't be read: {error}") from error

    def _connection(self) -> sqlite3.Connection:
        try:
            return self._free.get_nowait()
        except queue.Empty:
            return connect_reader(self._path)

    async def close(self) -> None:
        """Waits for the reads under way."""
        await asyncio.to_thread(self._pool.shutdown)
        while not self._free.empty():
            self._free.get_nowait().close()
