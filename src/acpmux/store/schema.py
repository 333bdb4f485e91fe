"""The tables, and how older ones become these. `user_version` counts the migrations done."""

import sqlite3

from acpmux.errors import StoreError

MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE sessions (
        session_id TEXT PRIMARY KEY,
        created    INTEGER NOT NULL,
        checkpoint BLOB NOT NULL,      -- JSON of model.session.Checkpoint
        last_seq   INTEGER NOT NULL
    );
    CREATE TABLE records (
        session_id TEXT NOT NULL,
        seq        INTEGER NOT NULL,
        at_ms      INTEGER NOT NULL,
        kind       TEXT NOT NULL,
        cause      TEXT NOT NULL,
        prompt_id  TEXT,
        body       BLOB NOT NULL
    );
    CREATE UNIQUE INDEX records_by_seq ON records (session_id, seq);
    CREATE INDEX records_by_prompt ON records (session_id, prompt_id) WHERE prompt_id IS NOT NULL;
    CREATE INDEX records_by_kind ON records (session_id, kind, seq);
    """,
    """
    ALTER TABLE sessions ADD COLUMN host_seq INTEGER NOT NULL DEFAULT 0;  -- of the harness's lines, stored up to here
    """,
)


def check_version(connection: sqlite3.Connection, path: str) -> None:
    """Raises: StoreError for a file of a newer acpmux."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > len(MIGRATIONS):
        raise StoreError(
            f"{path} was written by a newer acpmux (schema {version}, this one knows {len(MIGRATIONS)}): update acpmux"
        )


def migrate(connection: sqlite3.Connection) -> None:
    """Brings the file to this version, one transaction a step."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    for number, script in enumerate(MIGRATIONS[version:], version + 1):
        connection.executescript(f"BEGIN IMMEDIATE;{script}PRAGMA user_version = {number};COMMIT;")
