"""Implements `ports.EventLog` on SQLite.

Its one rule: a commit that returned is on the disk (synchronous=FULL), and a seq never has a gap. Commits that wait
together share
one transaction, each in a savepoint, so one that fails harms no other.
"""

import asyncio
import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from acpmux.errors import StoreError
from acpmux.model.ids import PromptId, Seq, SessionId
from acpmux.model.record import Kind, Record, Stored
from acpmux.model.session import Checkpoint
from acpmux.store.schema import check_version, migrate

BUSY_MS = 5000  # another process may read the file (a backup, a curious person)
_COLUMNS = "seq, at_ms, kind, cause, prompt_id, body"
_T = TypeVar("_T")
_decoder = msgspec.json.Decoder(Checkpoint)


class _Job(NamedTuple):
    work: Callable[[sqlite3.Connection], Any]
    done: "Future[Any]"


class SqliteLog:
    """One writer thread owns the one connection; reads go through it too, short and in order with the writes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="acpmux-store", daemon=True)
        self._opened: Future[None] = Future()

    @classmethod
    async def open(cls, path: Path) -> "SqliteLog":
        """Raises: StoreError naming the file when it can't be opened or is of a newer version."""
        log = cls(path)
        log._thread.start()
        await asyncio.wrap_future(log._opened)
        return log

    async def close(self) -> None:
        self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)

    # ------------------------------------------------------------ ports.EventLog

    async def commit(self, session_id: SessionId, rows: Sequence[Stored], checkpoint: Checkpoint | None) -> None:
        encoded = None if checkpoint is None else msgspec.json.encode(checkpoint)
        values = [
            (session_id, row.seq, row.record.at_ms, row.record.kind.value, row.record.cause, row.record.prompt_id,
            row.record.body)
            for row in rows
        ]  # fmt: skip
        created = 0 if checkpoint is None else checkpoint.created_at_ms

        def work(db: sqlite3.Connection) -> None:
            found = db.execute("SELECT last_seq FROM sessions WHERE session_id = ?", (session_id,)).fetchone()
            last = found[0] if found else 0
            if rows and rows[0].seq != last + 1:
                raise StoreError(f"record {rows[0].seq} of {session_id} would leave a gap behind {last}")
            db.executemany("INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?)", values)
            new_last = rows[-1].seq if rows else last
            if encoded is None:
                db.execute("UPDATE sessions SET last_seq = ? WHERE session_id = ?", (new_last, session_id))
            else:
                db.execute(
                    "INSERT INTO sessions VALUES (?, ?, ?, ?) ON CONFLICT (session_id) "
                    "DO UPDATE SET checkpoint = excluded.checkpoint, last_seq = excluded.last_seq",
                    (session_id, created, encoded, new_last),
                )

        await self._do(work)

    async def read(self, session_id: SessionId, after: Seq, limit: int) -> list[Stored]:
        sql = f"SELECT {_COLUMNS} FROM records WHERE session_id = ? AND seq > ? ORDER BY seq LIMIT ?"
        return await self._select(sql, (session_id, after, limit))

    async def read_prompt(self, session_id: SessionId, prompt_id: PromptId) -> list[Stored]:
        sql = f"SELECT {_COLUMNS} FROM records WHERE session_id = ? AND prompt_id = ? ORDER BY seq"
        return await self._select(sql, (session_id, prompt_id))

    async def read_kinds(self, session_id: SessionId, kinds: Sequence[Kind], last: int) -> list[Stored]:
        marks = ",".join("?" * len(kinds))
        sql = f"SELECT {_COLUMNS} FROM records WHERE session_id = ? AND kind IN ({marks}) ORDER BY seq DESC LIMIT ?"
        rows = await self._select(sql, (session_id, *(kind.value for kind in kinds), last))
        return rows[::-1]

    async def last_seq(self, session_id: SessionId) -> Seq:
        def work(db: sqlite3.Connection) -> Seq:
            found = db.execute("SELECT last_seq FROM sessions WHERE session_id = ?", (session_id,)).fetchone()
            return Seq(found[0] if found else 0)

        return await self._do(work)

    async def checkpoints(self) -> list[tuple[Checkpoint, Seq]]:
        def work(db: sqlite3.Connection) -> list[tuple[Checkpoint, Seq]]:
            rows = db.execute("SELECT checkpoint, last_seq FROM sessions ORDER BY created, session_id")
            return [(_decoder.decode(encoded), Seq(last)) for encoded, last in rows]

        return await self._do(work)

    async def purge(self, session_id: SessionId) -> None:
        def work(db: sqlite3.Connection) -> None:
            db.execute("DELETE FROM records WHERE session_id = ?", (session_id,))
            db.execute("DELETE FROM sessions WHERE session_id = ?", (session_id,))

        await self._do(work)

    # ------------------------------------------------------------ the thread

    async def _select(self, sql: str, values: tuple[Any, ...]) -> list[Stored]:
        def work(db: sqlite3.Connection) -> list[Stored]:
            return [
                Stored(Seq(seq), Record(Kind(kind), body, cause, at_ms, prompt_id))
                for seq, at_ms, kind, cause, prompt_id, body in db.execute(sql, values)
            ]

        return await self._do(work)

    async def _do(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        done: Future[_T] = Future()
        self._jobs.put(_Job(work, done))
        return await asyncio.wrap_future(done)

    def _run(self) -> None:
        try:
            db = self._connect()
        except (sqlite3.Error, OSError, StoreError) as error:
            known = error if isinstance(error, StoreError) else StoreError(f"{self._path} can't be opened: {error}")
            self._opened.set_exception(known)
            return
        self._opened.set_result(None)
        while (job := self._jobs.get()) is not None:
            jobs: list[_Job] = [job]
            ended = False
            while len(jobs) < 100 and not self._jobs.empty():
                more = self._jobs.get()
                if more is None:
                    ended = True
                    break
                jobs.append(more)
            self._group(db, jobs)
            if ended:
                break
        db.close()

    def _connect(self) -> sqlite3.Connection:
        os.close(os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
        db = sqlite3.connect(self._path, isolation_level=None, cached_statements=64)
        db.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
        check_version(db, str(self._path))  # before the first write: a newer file is left as it is
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        migrate(db)
        return db

    def _group(self, db: sqlite3.Connection, jobs: list[_Job]) -> None:
        """Every job in one transaction; results are given only when it is on the disk."""
        told: list[tuple[_Job, Any, Exception | None]] = []
        try:
            db.execute("BEGIN")
            # a reader that was cancelled while it waited is gone; one that runs can't be cancelled any more
            told = [self._one(db, job) for job in jobs if job.done.set_running_or_notify_cancel()]
            db.execute("COMMIT")
        except sqlite3.Error as error:
            if db.in_transaction:
                db.execute("ROLLBACK")
            failed = StoreError(f"{self._path} can't be written: {error}")
            told = [(job, None, failed) for job in jobs if not job.done.cancelled()]
        for job, result, error in told:
            if error is None:
                job.done.set_result(result)
            else:
                job.done.set_exception(error)

    def _one(self, db: sqlite3.Connection, job: _Job) -> tuple[_Job, Any, Exception | None]:
        db.execute("SAVEPOINT job")
        try:
            result = job.work(db)
        except (sqlite3.Error, msgspec.MsgspecError, ValueError, StoreError) as error:
            if not db.in_transaction:
                raise sqlite3.OperationalError(str(error)) from error  # a full disk took the whole transaction back
            db.execute("ROLLBACK TO job")
            db.execute("RELEASE job")
            known = error if isinstance(error, StoreError) else StoreError(f"{self._path}: {error}")
            return job, None, known
        db.execute("RELEASE job")
        return job, result, None
