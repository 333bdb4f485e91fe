import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from acpmux.errors import StoreError
from acpmux.store import schema


@pytest.fixture
def db() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        yield connection


def version(db: sqlite3.Connection) -> int:
    return db.execute("PRAGMA user_version").fetchone()[0]


def test_empty_file_becomes_one_of_this_version(db: sqlite3.Connection) -> None:
    schema.migrate(db)
    assert version(db) == len(schema.MIGRATIONS)
    assert db.execute("SELECT count(*) FROM sessions, records").fetchone() == (0,)


def test_file_of_this_version_is_left_as_it_is(db: sqlite3.Connection) -> None:
    schema.migrate(db)
    before = db.total_changes
    schema.migrate(db)
    assert db.total_changes == before


def test_only_the_missing_steps_are_done_and_what_is_stored_stays(
    db: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema.migrate(db)
    db.execute("INSERT INTO sessions (session_id, created, checkpoint, last_seq) VALUES ('s1', 1, '{}', 0)")
    newer = (*schema.MIGRATIONS, "ALTER TABLE sessions ADD COLUMN tag TEXT;")
    monkeypatch.setattr(schema, "MIGRATIONS", newer)
    schema.migrate(db)
    assert version(db) == len(newer)
    assert db.execute("SELECT session_id, tag FROM sessions").fetchall() == [("s1", None)]


@pytest.mark.parametrize("reached", range(1, len(schema.MIGRATIONS)))
def test_file_of_every_earlier_version_becomes_one_of_this(
    db: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch, reached: int
) -> None:
    everything = schema.MIGRATIONS
    monkeypatch.setattr(schema, "MIGRATIONS", everything[:reached])
    schema.migrate(db)
    db.execute("INSERT INTO sessions (session_id, created, checkpoint, last_seq) VALUES ('s1', 1, '{}', 7)")
    db.execute("INSERT INTO records VALUES ('s1', 7, 1, 'update', 'c', NULL, 'body')")
    monkeypatch.setattr(schema, "MIGRATIONS", everything)
    schema.migrate(db)
    assert version(db) == len(everything)
    assert db.execute("SELECT last_seq FROM sessions").fetchall() == [(7,)]
    assert db.execute("SELECT body FROM records").fetchall() == [("body",)]


def test_step_that_fails_is_not_counted_and_taken_back_whole(
    db: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema.migrate(db)
    reached = version(db)
    broken = "ALTER TABLE sessions ADD COLUMN tag TEXT; ALTER TABLE nobody ADD COLUMN x TEXT;"
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, broken))
    with pytest.raises(sqlite3.Error, match="nobody"):
        schema.migrate(db)
    db.execute("ROLLBACK")  # as closing the file does
    assert version(db) == reached
    with pytest.raises(sqlite3.Error, match="no such column"):
        db.execute("SELECT tag FROM sessions")


def test_newer_version_is_refused_by_name(db: sqlite3.Connection) -> None:
    db.execute(f"PRAGMA user_version = {len(schema.MIGRATIONS) + 1}")
    with pytest.raises(StoreError, match=r"x\.db was written by a newer acpmux .* update acpmux"):
        schema.check_version(db, "x.db")
