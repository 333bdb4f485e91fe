"""`ls` and `info`: on no path of theirs is anything that takes time to import."""

import os
from typing import Any

import click

from acpmux.cli.output import (
    STATUS_COLOURS,
    columns,
    json_option,
    paint,
    print_json,
    seconds_from_now,
    session_argument,
    span,
)
from acpmux.client import connect

ANSWER_BUDGET_S = 10.0  # the daemon answers from memory
STATUSES = ("hibernated", "waking", "ready", "running", "waiting", "parked", "hibernating", "closed")


@click.command(
    "ls",
    epilog="Examples:\n\n\b\n  acpmux ls\n  acpmux ls --status waiting\n  acpmux ls --json | jq -r '.[].name'",
)
@click.option("--status", type=click.Choice(STATUSES), help="Only sessions of this status.")
@json_option
def ls_command(status: str | None, as_json: bool) -> None:
    """List the sessions, each with its status and when it will sleep."""
    with connect() as connection:
        rows: list[dict[str, Any]] = connection.request("_acpmux/sessions", {"status": status}, ANSWER_BUDGET_S)[
            "sessions"
        ]
    if as_json:
        print_json(rows)
        return
    if not rows:
        click.echo("No sessions. Start one: acpmux new -a AGENT   (which agents: acpmux agents)")
        return
    rows.sort(key=lambda row: row["lastActiveAt"], reverse=True)
    table = [_cells(row) for row in rows]
    columns(
        ("NAME", "STATUS", "AGENT", "ACTIVE", "SLEEPS", "QUEUE", "FOLDER", "TITLE"),
        table,
        {1: lambda cell: paint(cell, STATUS_COLOURS.get(cell.strip(), "bold"))},
    )


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    active = seconds_from_now(row["lastActiveAt"]) or 0.0
    sleeps = seconds_from_now(row["idleDeadline"])
    title = row["title"] or row["lastError"] or ""
    return (
        row["name"],
        row["status"],
        row["agent"],
        f"{span(-active)} ago",
        "-" if sleeps is None else f"in {span(sleeps)}",
        str(row["queued"]) if row["queued"] else "-",
        _folder(row["cwd"]),
        title if len(title) <= 50 else title[:49] + "…",
    )


def _folder(path: str) -> str:
    """From the home folder on, and of a long one its end."""
    home = os.path.expanduser("~")
    short = "~" + path[len(home) :] if path == home or path.startswith(home + "/") else path
    return short if len(short) <= 30 else "…" + short[-29:]


@click.command("info", epilog="Examples:\n\n\b\n  acpmux info web\n  acpmux info web --json")
@session_argument
@json_option
def info_command(name: str, as_json: bool) -> None:
    """Show everything about one session."""
    with connect() as connection:
        row = connection.request("_acpmux/info", {"sessionId": name}, ANSWER_BUDGET_S)
    if as_json:
        print_json(row)
        return
    width = max(len(key) for key in row)
    for key, value in row.items():
        click.echo(f"{paint(key.ljust(width), 'dim')}  {'-' if value is None else value}")
