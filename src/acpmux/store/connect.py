"""Opens the file: the one connection that writes, and those that read beside it."""

import os
import sqlite3
from pathlib import Path

from acpmux.errors import StoreError
from acpmux.store.schema import check_version, migrate

READER_CACHE_KB = 256  # the system's own cache is a copy away; SQLite's would fill to 2 MB for each reader
BUSY_MS = 5000  # another process may hold the file for a moment (a backup, a curious person)


def connect_writer(path: Path) -> sqlite3.Connection:
    """The file as this version knows it, made when there is none.

    The writer sets `synchronous` for each transaction.
    Raises: StoreError naming the file.
    """
    try:
        # SQLite gives -wal and -shm the mode of the file, so all three are the user's alone
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
        db = _connect(path)
        try:
            check_version(db, str(path))  # before the first write: a newer file is left as it is
            db.execute("PRAGMA journal_mode = WAL")
            migrate(db)
        except (sqlite3.Error, StoreError):
            db.close()
            raise
    except (sqlite3.Error, OSError) as error:
        raise StoreError(f"{path} can't be opened: {error}") from error
    return db


def connect_reader(path: Path) -> sqlite3.Connection:
    """Reads what is committed and waits for no writer (WAL). Used by one thread at a time. Raises: sqlite3.Error."""
    db = _connect(path)
    db.execute("PRAGMA query_only = ON")
    db.execute(f"PRAGMA cache_size = -{READER_CACHE_KB}")
    return db


def files_of(path: Path) -> list[tuple[int, int] | None]:
    """Which files are at the places of the database and of its latest transactions (-wal)."""
    found: list[tuple[int, int] | None] = []
    for name in (str(path), f"{path}-wal"):
        try:
            told = os.stat(name)
            found.append((told.st_dev, told.st_ino))
        except OSError:
            found.append(None)
    return found


def _connect(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None, cached_statements=64, check_same_thread=False)
    db.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
    return db
