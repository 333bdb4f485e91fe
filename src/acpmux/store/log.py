"""Implements `ports.EventLog` on SQLite: what is asked of the file, as SQL.

Its one rule: a seq never has a gap. Read next: `writer.py`, when a commit is durable, and `readers.py`.
"""

import asyncio
import logging
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from acpmux.errors import StoreError, Unstorable
from acpmux.model.ids import NO_LINE, HostSeq, PromptId, Seq, SessionId
from acpmux.model.record import Kind, Record, Stored
from acpmux.model.session import Checkpoint
from acpmux.store.connect import connect_writer
from acpmux.store.readers import Readers
from acpmux.store.salvage import Salvaged, is_damage, is_marked, salvage
from acpmux.store.writer import Writer

PAGE_BYTES = 8_000_000  # a page of the log ends behind the record that reaches it; a record may be 50 MB
_COLUMNS = "seq, at_ms, kind, cause, prompt_id, body"
# without the hint the index that gives the order is taken, and a whole session is read for one prompt
PROMPT_SQL = (
    f"SELECT {_COLUMNS} FROM records INDEXED BY records_by_prompt WHERE session_id = ? AND prompt_id = ? ORDER BY seq"
)
_logger = logging.getLogger(__name__)
_decoder = msgspec.json.Decoder(Checkpoint)


class SqliteLog:
    """One writer and a few readers of one file, from `open` to `close`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer = Writer(path)
        self._readers = Readers(path)
        self._closed = False

    @classmethod
    async def open(cls, path: Path) -> "SqliteLog":
        """A damaged file is put aside, and what can be read of it is served.

        Only what a start reads is looked at: the list of the sessions. A check of the whole file takes a second for
        some 500 MB, so that is `doctor`'s, and a read that meets damage has the next start salvage it.
        Raises: StoreError naming the file when it can't be opened or is of a newer version.
        """
        salvaged = await asyncio.to_thread(_salvage_if_damaged, path)
        if salvaged is not None:
            text = "log damaged file=%s sessions=%d closed=%d records=%d lost=%d"
            told = (salvaged.sessions, salvaged.closed, salvaged.records, salvaged.lost)
            _logger.warning(text, salvaged.aside, *told)
        log = cls(path)
        await log._writer.open()
        return log

    async def close(self) -> None:
        """What was asked before is still done; what is asked after is refused."""
        self._closed = True
        await self._readers.close()
        await self._writer.close()

    # ------------------------------------------------------------ ports.EventLog

    async def commit(
        self,
        session_id: SessionId,
        rows: Sequence[Stored],
        checkpoint: Checkpoint | None,
        host_seq: HostSeq = NO_LINE,
    ) -> None:
        self._check_open()
        encoded = None if checkpoint is None else _encode(checkpoint)
        created = 0 if checkpoint is None else checkpoint.created_at_ms
        seqs = [row.seq for row in rows]
        values = [
            (session_id, seq, record.at_ms, record.kind.value, record.cause, record.prompt_id, record.body)
            for seq, record in ((row.seq, row.record) for row in rows)
        ]

        def work(db: sqlite3.Connection) -> None:
            found = _last_seq(db, session_id)
            last = found or 0
            if seqs != list(range(last + 1, last + 1 + len(seqs))):
                raise StoreError(f"the records {seqs[:3]} of {session_id} would leave a gap behind {last}")
            db.executemany("INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?)", values)
            last += len(seqs)
            if encoded is not None:
                db.execute(
                    "INSERT INTO sessions VALUES (?, ?, ?, ?, ?) ON CONFLICT (session_id) DO UPDATE SET "
                    "checkpoint = excluded.checkpoint, last_seq = excluded.last_seq, host_seq = excluded.host_seq",
                    (session_id, created, encoded, last, host_seq),
                )
            elif found is None:
                raise StoreError(f"nothing is stored of {session_id}, and its first commit brought no checkpoint")
            else:
                told = (last, host_seq, session_id)
                db.execute("UPDATE sessions SET last_seq = ?, host_seq = ? WHERE session_id = ?", told)

        # an agent's updates alone need no disk of their own: with the power, the agent that said them is gone too
        await self._writer.do(work, firm=encoded is not None or any(r.record.kind is not Kind.UPDATE for r in rows))

    async def read(self, session_id: SessionId, after: Seq, limit: int) -> list[Stored]:
        """Ends sooner than `limit` behind the record with which it holds `PAGE_BYTES`."""
        sql = f"SELECT {_COLUMNS} FROM records WHERE session_id = ? AND seq > ? ORDER BY seq LIMIT ?"
        return await self._select(sql, (session_id, after, limit), PAGE_BYTES)

    async def read_prompt(self, session_id: SessionId, prompt_id: PromptId) -> list[Stored]:
        return await self._select(PROMPT_SQL, (session_id, prompt_id))

    async def read_kinds(self, session_id: SessionId, kinds: Sequence[Kind], last: int) -> list[Stored]:
        names = {kind.value for kind in kinds}
        return await self._select(kinds_sql(len(names)), (session_id, last, *names))

    async def last_seq(self, session_id: SessionId) -> Seq:
        self._check_open()
        return Seq(await self._readers.do(lambda db: _last_seq(db, session_id)) or 0)

    async def host_seq(self, session_id: SessionId) -> HostSeq:
        def work(db: sqlite3.Connection) -> int:
            found = db.execute("SELECT host_seq FROM sessions WHERE session_id = ?", (session_id,)).fetchone()
            return 0 if found is None else found[0]

        self._check_open()
        return HostSeq(await self._readers.do(work))

    async def checkpoints(self) -> list[tuple[Checkpoint, Seq]]:
        def work(db: sqlite3.Connection) -> list[tuple[Checkpoint, Seq]]:
            rows = db.execute("SELECT session_id, checkpoint, last_seq FROM sessions ORDER BY created, session_id")
            decoded = ((_decode(session_id, encoded), Seq(last)) for session_id, encoded, last in rows)
            return [(checkpoint, last) for checkpoint, last in decoded if checkpoint is not None]

        self._check_open()
        return await self._readers.do(work)

    async def purge(self, session_id: SessionId) -> None:
        def work(db: sqlite3.Connection) -> None:
            db.execute("DELETE FROM records WHERE session_id = ?", (session_id,))
            db.execute("DELETE FROM sessions WHERE session_id = ?", (session_id,))

        self._check_open()
        await self._writer.do(work)

    # ------------------------------------------------------------

    async def _select(self, sql: str, values: tuple[Any, ...], most_bytes: int | None = None) -> list[Stored]:
        def work(db: sqlite3.Connection) -> list[Stored]:
            found: list[Stored] = []
            size_bytes = 0
            with closing(db.execute(sql, values)) as rows:
                for seq, at_ms, kind, cause, prompt_id, body in rows:
                    found.append(Stored(Seq(seq), Record(Kind(kind), body, cause, at_ms, prompt_id)))
                    size_bytes += len(body)
                    if most_bytes is not None and size_bytes >= most_bytes:
                        break
            return found

        self._check_open()
        return await self._readers.do(work)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError(f"{self._path} is closed")


def kinds_sql(count: int) -> str:
    """The last records of so many kinds, each kind looked up by itself: a rare one is not searched for among all."""
    each = "SELECT * FROM (SELECT seq FROM records WHERE session_id = ?1 AND kind = ?{} ORDER BY seq DESC LIMIT ?2)"
    seqs = " UNION ALL ".join(each.format(number) for number in range(3, 3 + count))
    last = f"{seqs} ORDER BY seq DESC LIMIT ?2"
    return f"SELECT {_COLUMNS} FROM records WHERE session_id = ?1 AND seq IN ({last}) ORDER BY seq"


def _last_seq(db: sqlite3.Connection, session_id: SessionId) -> int | None:
    found = db.execute("SELECT last_seq FROM sessions WHERE session_id = ?", (session_id,)).fetchone()
    return None if found is None else found[0]


def _encode(checkpoint: Checkpoint) -> bytes:
    try:
        return msgspec.json.encode(checkpoint)
    except ValueError as error:  # a text that is not Unicode
        raise Unstorable(f"the state of {checkpoint.session_id} can't be written: {error}") from error


def _decode(session_id: str, encoded: bytes) -> Checkpoint | None:
    """None for a state that can't be read: its session is not served, and what is stored of it stays."""
    try:
        return _decoder.decode(encoded)
    except msgspec.MsgspecError as error:
        _logger.error("session not served session=%s error=%s; see: acpmux doctor", session_id, error)
        return None


def _salvage_if_damaged(path: Path) -> Salvaged | None:
    if not path.exists():
        return None
    try:
        with closing(connect_writer(path)) as db:
            damaged = is_marked(path)
            db.execute("SELECT sum(length(checkpoint)) FROM sessions").fetchone()
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise StoreError(f"{path} can't be read: {error}") from error
        damaged = True
    except StoreError as error:
        if not is_damage(error.__cause__):
            raise
        damaged = True
    return salvage(path) if damaged else None
