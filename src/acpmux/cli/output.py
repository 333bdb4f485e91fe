"""What is printed.

JSON for scripts, columns for people, colour only where it is wanted (NO_COLOR, pipes, dumb terminals).
"""

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import click

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON value.")


def session_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    """NAME: a session's name or id; inside an agent `@` is its own."""
    return click.argument("name", callback=_named, shell_complete=_complete)(function)


def _named(ctx: click.Context, param: click.Parameter, value: str) -> str:
    if value != "@":
        return value
    own = os.environ.get("ACPMUX_SESSION_ID") or os.environ.get("ACPMUX_HOST")
    if own is None:
        raise click.BadParameter("'@' names the session an agent runs in, and this is not inside one")
    return own


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from acpmux.client import connect
    from acpmux.errors import AcpmuxError

    try:
        with connect(start=False) as connection:
            rows = connection.request("_acpmux/sessions", {}, 2.0)["sessions"]
    except AcpmuxError:
        return []
    return [row["name"] for row in rows if row["name"].startswith(incomplete)]


def print_json(value: Any) -> None:
    click.echo(json.dumps(value))


def coloured() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


_CODES = {"green": "32", "yellow": "33", "cyan": "36", "red": "31", "dim": "2", "bold": "1"}


def paint(text: str, colour: str) -> str:
    return f"\x1b[{_CODES[colour]}m{text}\x1b[0m" if coloured() and text else text


STATUS_COLOURS = {
    "ready": "green",
    "running": "cyan",
    "waiting": "yellow",
    "waking": "cyan",
    "hibernating": "dim",
    "hibernated": "dim",
    "closed": "dim",
    "parked": "yellow",
}


def columns(
    head: Sequence[str], rows: Sequence[Sequence[str]], paints: dict[int, Callable[[str], str]] | None = None
) -> None:
    """Aligned columns by hand: rich would cost more than the whole command."""
    table = [head, *rows]
    widths = [max(len(str(row[i])) for row in table) for i in range(len(head))]
    for number, row in enumerate(table):
        cells = [str(cell).ljust(width) for cell, width in zip(row, widths, strict=True)]
        if number == 0:
            cells = [paint(cell, "bold") for cell in cells]
        else:
            for index, function in (paints or {}).items():
                cells[index] = function(cells[index])
        click.echo("  ".join(cells).rstrip())


def megabytes(size: int | None) -> str:
    return "-" if size is None else f"{size / 1e6:.0f} MB"


def seconds_from_now(at: str | None) -> float | None:
    """Seconds until an RFC 3339 time; negative for the past."""
    if at is None:
        return None
    from datetime import datetime

    return datetime.fromisoformat(at.replace("Z", "+00:00")).timestamp() - time.time()


def span(seconds: float) -> str:
    """A length of time for people: 12s, 3m 05s, 2h 10m, 4d."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h {whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d"
