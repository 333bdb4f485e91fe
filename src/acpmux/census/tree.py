"""Who is under a harness: parent chain and process group, from rows alone (pure)."""

from collections.abc import Iterable

from acpmux.model.process import Row


def by_parent(rows: Iterable[Row]) -> dict[int, list[Row]]:
    """Children by parent pid.

    A row older than the process it names as parent is no child of it: that pid was used again.
    """
    listed = {row.pid: row for row in rows}
    found: dict[int, list[Row]] = {}
    for row in listed.values():
        parent = listed.get(row.ppid)
        if parent is None or parent.start <= row.start:
            found.setdefault(row.ppid, []).append(row)
    return found


def below(rows: Iterable[Row], pid: int) -> list[Row]:
    """Every row reached from `pid` by parent chain, `pid` itself left out."""
    children = by_parent(rows)
    found: list[Row] = []
    seen = {pid}
    pending = [pid]
    while pending:
        for child in children.get(pending.pop(), ()):
            if child.pid not in seen:
                seen.add(child.pid)
                found.append(child)
                pending.append(child.pid)
    return found
