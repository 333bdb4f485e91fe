"""A damaged file is kept aside, whole; what can still be read of it goes into a new one, which is served.

A record that can't be read leaves its place: a note with its seq stands there, so that every other record keeps its own
and a client's cursor stays true. A session whose state can't be read is closed: what it said can be read, no more.
"""

import json
import os
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from acpmux.model.ids import SessionId
from acpmux.model.record import Kind
from acpmux.model.session import Checkpoint, State
from acpmux.store.connect import connect_writer
from acpmux.untyped import as_object

STEP = 512  # rows of one read; around damage fewer, down to one
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_NOTE = json.dumps(
    {"method": "_acpmux/damaged", "params": {"reason": "this record could not be read any more"}}
).encode()
_Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Salvaged:
    """What was done about a damaged file, which is at `aside` now."""

    aside: Path
    sessions: int
    closed: int
    records: int
    lost: int


def is_damage(error: BaseException | None) -> bool:
    """True for a file that is damaged or none of SQLite's; not for a disk, a lock or a permission."""
    return isinstance(error, sqlite3.DatabaseError) and getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGE


def mark(path: Path) -> None:
    """Damage was met while the file was in use: the next start salvages it."""
    os.close(os.open(_marker(path), os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))


def is_marked(path: Path) -> bool:
    return _marker(path).exists()


def _marker(path: Path) -> Path:
    return path.with_name(f"{path.name}.damaged")


def salvage(path: Path) -> Salvaged:
    """Raises: StoreError, OSError; the damaged file is then aside already and complete."""
    aside = path.with_name(f"{path.name}.corrupt-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}")
    for suffix in ("-wal", "-shm", ""):
        if (old := path.with_name(path.name + suffix)).exists():
            old.rename(aside.with_name(aside.name + suffix))
    _marker(path).unlink(missing_ok=True)
    new = connect_writer(path)
    new.execute("BEGIN IMMEDIATE")
    old_db = sqlite3.connect(aside, isolation_level=None)
    try:
        records = _copy_records(old_db, new)
        columns = "session_id, created, checkpoint, last_seq, host_seq"
        states = {row[0]: row for row in _readable(old_db, "sessions", columns) if isinstance(row[0], str)}
        closed, lost = _complete(new, states)
        new.execute("COMMIT")
        sessions = new.execute("SELECT count(*) FROM sessions").fetchone()[0]
    finally:
        old_db.close()
        new.close()
    return Salvaged(aside, sessions, closed, records, lost)


def _readable(db: sqlite3.Connection, table: str, columns: str) -> Iterator[_Row]:
    """Every row that can be read, by row number: reads around damage take fewer rows until one is left, and skip it."""
    after, step = 0, STEP
    sql = f"SELECT {columns} FROM {table} NOT INDEXED WHERE rowid > ? AND rowid <= ? ORDER BY rowid"
    top = _top(db, table)
    while after < top:
        try:
            rows = db.execute(sql, (after, after + step)).fetchall()
        except (sqlite3.DatabaseError, ValueError):
            if step == 1:
                after += 1
            step = max(1, step // 2)
            continue
        yield from rows
        after += step
        step = min(STEP, step * 2)


def _top(db: sqlite3.Connection, table: str) -> int:
    """The last row number; where that can't be read, the highest of the indexes or none."""
    for sql in (f"SELECT max(rowid) FROM {table} NOT INDEXED", f"SELECT max(rowid) FROM {table}"):
        try:
            return db.execute(sql).fetchone()[0] or 0
        except sqlite3.DatabaseError:
            continue
    return 0


def _copy_records(old: sqlite3.Connection, new: sqlite3.Connection) -> int:
    columns = "session_id, seq, at_ms, kind, cause, prompt_id, body"
    before = new.total_changes
    for row in _readable(old, "records", columns):
        if _fits(row):
            new.execute("INSERT OR IGNORE INTO records VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    return new.total_changes - before


def _fits(row: _Row) -> bool:
    """Whether a row of a damaged file is a record at all."""
    session_id, seq, at_ms, kind, cause, prompt_id, body = row
    texts = isinstance(session_id, str) and isinstance(cause, str) and isinstance(prompt_id, str | None)
    numbers = isinstance(seq, int) and isinstance(at_ms, int) and seq > 0
    return texts and numbers and isinstance(body, bytes) and kind in {one.value for one in Kind}


def _complete(new: sqlite3.Connection, states: dict[str, _Row]) -> tuple[int, int]:
    """Gives every session its state and every missing record its note. Returns (sessions closed, records lost)."""
    ids = [session_id for (session_id,) in new.execute("SELECT DISTINCT session_id FROM records").fetchall()]
    closed = lost = 0
    for session_id in dict.fromkeys([*ids, *states]):
        found = dict(new.execute("SELECT seq, at_ms FROM records WHERE session_id = ?", (session_id,)).fetchall())
        state = states.get(session_id)
        last = max([*found, state[3] if state and isinstance(state[3], int) else 0, 1])
        for seq in range(1, last + 1):
            if seq not in found:
                note = (session_id, seq, found.get(seq - 1, 0), Kind.REQUEST.value, "salvage", None, _NOTE)
                new.execute("INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?)", note)
                lost += 1
        if state is None or not _decodes(state[2]):
            state = _closed(new, session_id, found.get(1, 0))
            closed += 1
        values = (session_id, state[1], state[2], last, state[4])
        new.execute("INSERT INTO sessions VALUES (?, ?, ?, ?, ?)", values)
    return closed, lost


def _decodes(checkpoint: object) -> bool:
    try:
        msgspec.json.decode(checkpoint, type=Checkpoint)  # type: ignore[reportArgumentType]
    except (msgspec.MsgspecError, TypeError):
        return False
    return True


def _closed(new: sqlite3.Connection, session_id: str, at_ms: int) -> _Row:
    """A state for a session that has lost its own, from its first record where that is left."""
    body = new.execute("SELECT body FROM records WHERE session_id = ? AND seq = 1", (session_id,)).fetchone()
    told = as_object(json.loads(body[0])) if body else {}
    name, agent, cwd = str(told.get("name") or session_id), str(told.get("agent") or "?"), str(told.get("cwd") or "/")
    state = Checkpoint(SessionId(session_id), f"{name}-salvaged", agent, cwd, at_ms, at_ms, state=State.CLOSED)
    return session_id, at_ms, msgspec.json.encode(state), 0, 0
