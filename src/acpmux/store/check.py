"""Whether a log is whole: SQLite's own check, and the laws that acpmux adds to it."""

import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

SHOWN = 5  # faults of a kind; a damaged page makes thousands
_LAWS = {
    "a session's records have a gap": (
        "SELECT session_id FROM records GROUP BY session_id HAVING min(seq) != 1 OR max(seq) != count(*)"
    ),
    "records belong to no session": "SELECT DISTINCT session_id FROM records EXCEPT SELECT session_id FROM sessions",
    "a session has other records than it counts": (
        "SELECT session_id FROM sessions WHERE last_seq != "
        "(SELECT coalesce(max(seq), 0) FROM records WHERE records.session_id = sessions.session_id)"
    ),
}


def faults(path: Path) -> list[str]:
    """What is wrong with the log, in a few lines; nothing is written, and a daemon may be using it."""
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as db:
            db.execute("BEGIN")  # one moment of it, whatever a daemon writes meanwhile
            found = [str(row[0]) for row in db.execute(f"PRAGMA quick_check({SHOWN})") if row[0] != "ok"]
            for what, sql in () if found else _LAWS.items():
                named = [str(row[0]) for row in db.execute(f"{sql} LIMIT {SHOWN}")]
                found += [f"{what}: {', '.join(named)}"] if named else []
    except sqlite3.Error as error:
        return [str(error)]
    return found


def kept_aside(path: Path) -> list[Path]:
    """Damaged files that a daemon has put aside, oldest first."""
    return sorted(one for one in path.parent.glob(f"{path.name}.corrupt-*") if not one.name.endswith(("-wal", "-shm")))
