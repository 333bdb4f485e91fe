"""The one thread that writes.

Its one rule: a job is answered only when its transaction is in the file. Jobs that wait together share one
transaction, each in a savepoint, so one that fails harms no other.
"""

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import NamedTuple

from acpmux.errors import AcpmuxError, StoreError, Unstorable
from acpmux.store.connect import connect_writer, files_of

TOGETHER = 100  # jobs a transaction: more save nothing, and the first of them waits for the last
_GONE = "it was removed or replaced under the daemon. Put it back, or end the daemon: acpmux daemon shutdown"

Work = Callable[[sqlite3.Connection], None]


class _Job(NamedTuple):
    work: Work
    firm: bool
    done: "Future[None]"


class Writer:
    """Owns the thread and its connection from `open` to `close`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._opened: Future[None] = Future()
        self._files: list[tuple[int, int] | None] = []
        self._thread = threading.Thread(target=self._run, name="acpmux-store", daemon=True)

    async def open(self) -> None:
        """Raises: StoreError; then no thread is left."""
        self._thread.start()
        await asyncio.wrap_future(self._opened)

    async def do(self, work: Work, firm: bool = True) -> None:
        """Raises: StoreError; then nothing of it is stored. Cancelled, it may be stored or not.

        A firm job has reached the disk when it returns, with all before it. One that is not may be lost with the
        machine's power, never with a process, and never before an older one.
        """
        done: Future[None] = Future()
        self._jobs.put(_Job(work, firm, done))
        await asyncio.wrap_future(done)

    async def close(self) -> None:
        """What was asked before is still done; nothing may be asked after."""
        self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)

    # ------------------------------------------------------------ the thread

    def _run(self) -> None:
        try:
            db = connect_writer(self._path)
        except StoreError as error:
            self._opened.set_exception(error)
            return
        self._files = files_of(self._path)
        self._opened.set_result(None)
        ended = False
        while not ended:
            jobs, ended = self._next()
            self._write(db, jobs)
        db.close()

    def _next(self) -> tuple[list[_Job], bool]:
        """Waits for a job and takes those that wait behind it; true when these are the last."""
        jobs: list[_Job] = []
        while not jobs or (len(jobs) < TOGETHER and not self._jobs.empty()):
            job = self._jobs.get()
            if job is None:
                return jobs, True
            jobs.append(job)
        return jobs, False

    def _write(self, db: sqlite3.Connection, jobs: list[_Job]) -> None:
        asked = [job for job in jobs if job.done.set_running_or_notify_cancel()]  # from here on none can be cancelled
        if not asked:
            return
        try:
            self._check_place()
            db.execute(f"PRAGMA synchronous = {'FULL' if any(job.firm for job in asked) else 'NORMAL'}")
            db.execute("BEGIN IMMEDIATE")
            faults = [self._one(db, job.work) for job in asked]
            db.execute("COMMIT")
        except sqlite3.Error as error:
            _take_back(db)
            faults = [StoreError(f"{self._path} can't be written: {error}") for _ in asked]
        for job, fault in zip(asked, faults, strict=True):
            if fault is None:
                job.done.set_result(None)
            else:
                job.done.set_exception(fault)

    def _check_place(self) -> None:
        """What goes into a file that nobody finds again would be lost. Raises: sqlite3.OperationalError."""
        if any(now != then for now, then in zip(files_of(self._path), self._files, strict=True) if then is not None):
            raise sqlite3.OperationalError(_GONE)

    def _one(self, db: sqlite3.Connection, work: Work) -> AcpmuxError | None:
        """What is wrong with this job alone. Raises: sqlite3.Error when the whole transaction is lost."""
        db.execute("SAVEPOINT job")
        try:
            work(db)
        except (sqlite3.Error, ValueError, ArithmeticError, MemoryError, StoreError) as error:
            if not db.in_transaction:
                raise sqlite3.OperationalError(str(error)) from error  # a full disk took all of it back
            db.execute("ROLLBACK TO job")
            db.execute("RELEASE job")
            if isinstance(error, ValueError | ArithmeticError):
                return Unstorable(f"this can't be written to {self._path}: {error}")
            return error if isinstance(error, StoreError) else StoreError(f"{self._path} can't be written: {error}")
        db.execute("RELEASE job")
        return None


def _take_back(db: sqlite3.Connection) -> None:
    try:
        if db.in_transaction:
            db.execute("ROLLBACK")
    except sqlite3.Error:
        pass  # the disk fails here too; the next BEGIN says so, and comes here again
