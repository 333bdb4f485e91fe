"""`ps` and `why`: what runs, and why it does."""

from typing import Any

import click

from acpmux.cli.output import (
    columns,
    json_option,
    megabytes,
    paint,
    print_json,
    seconds_from_now,
    session_argument,
    span,
)
from acpmux.client import connect

ANSWER_BUDGET_S = 10.0  # a census takes 3 s over all its tries
_VERDICTS = {
    "other": "yellow",
    "left-running": "yellow",
    "server": "cyan",
    "under-server": "cyan",
    "harness": "green",
}


@click.command(
    "ps",
    epilog="Examples:\n\n\b\n  acpmux ps web\n  acpmux ps --json web\n  acpmux ps        (all awake sessions)",
)
@click.argument("name", required=False)
@json_option
def ps_command(name: str | None, as_json: bool) -> None:
    """Every process of a session with what it is: the agent, a server, under one, somebody else, or left running."""
    with connect() as connection:
        names = [name] if name else _awake(connection)
        found = [(one, connection.request("_acpmux/census", {"sessionId": one}, ANSWER_BUDGET_S)) for one in names]
    if as_json:
        print_json(found[0][1] if name else [told for _, told in found])
        return
    if not found:
        click.echo("No session is awake. See: acpmux ls")
    for one, told in found:
        _table(one, told)


def _awake(connection: Any) -> list[str]:
    rows = connection.request("_acpmux/sessions", {}, ANSWER_BUDGET_S)["sessions"]
    return [row["name"] for row in rows if row["pid"] is not None]


def _table(name: str, told: dict[str, Any]) -> None:
    rows = told["processes"]
    if not told["whole"]:
        click.echo(f"{name}: the listing is not whole: {told['unknown']}")
    elif not rows:
        click.echo(f"{name}: nothing runs; it sleeps")
    if not rows:
        return
    table = [
        (
            str(row["pid"]),
            row["verdict"],
            row["server"] or "-",
            megabytes(row["rssBytes"]),
            span(-(seconds_from_now(row["startedAt"]) or 0.0)),
            ",".join(str(port) for port in row.get("ports") or ()) or "-",
            " ".join(part for part in row["argv"] if part)[:90],
        )
        for row in rows
    ]
    click.echo(paint(name, "bold"))
    columns(
        ("PID", "VERDICT", "SERVER", "MEMORY", "AGE", "PORTS", "COMMAND"),
        table,
        {1: lambda cell: paint(cell, _VERDICTS.get(cell.strip(), "bold"))},
    )
    click.echo(paint(f"{len(rows)} processes, {megabytes(sum(row['rssBytes'] for row in rows))} resident", "dim"))


@click.command("why", epilog="Examples:\n\n\b\n  acpmux why web\n  acpmux why web --json | jq .holds")
@session_argument
@json_option
def why_command(name: str, as_json: bool) -> None:
    """Why a session is awake, or how it came to sleep, as a short story that says what to do."""
    with connect() as connection:
        told = connection.request("_acpmux/why", {"sessionId": name}, ANSWER_BUDGET_S)
    if as_json:
        print_json(told)
        return
    click.echo(f"{paint(name, 'bold')} is {told['status']}." + _deadline(told))
    for hold in told["holds"]:
        click.echo(f"  {paint('held by', 'yellow')} {hold['kind']}: {_hold(hold)}")
    advice = _advice(name, told)
    if advice:
        click.echo(f"  {advice}")
    if told["refusals"]:
        click.echo(f"  it was asked to sleep and stayed awake {told['refusals']} time(s)")
    if told["lastError"]:
        click.echo(f"  last error: {told['lastError']}")
    click.echo(paint("story", "dim"))
    for step in told["story"]:
        ago = span(-(seconds_from_now(step["at"]) or 0.0))
        click.echo(f"  {ago + ' ago':>12}  {step['text']}")


def _deadline(told: dict[str, Any]) -> str:
    left = seconds_from_now(told["idleDeadline"])
    return "" if left is None else f" Unless it is used, it is asked to sleep in {span(left)}."


def _hold(hold: dict[str, Any]) -> str:
    if hold["pid"] is not None:
        return f"pid {hold['pid']}  {hold['command']}"
    left = seconds_from_now(hold["until"])
    return hold["detail"] + ("" if left is None else f" (for {span(left)} more)")


def _advice(name: str, told: dict[str, Any]) -> str | None:
    kinds = {hold["kind"] for hold in told["holds"]}
    if "census" in kinds:
        return f"It sleeps one idle period after that has ended. End it yourself, or all of it: acpmux stop {name}"
    if "ask" in kinds:
        return f"Answer it: acpmux allow {name}   or: acpmux deny {name}"
    if "unknown" in kinds:
        return f"It is asked again by itself. Look: acpmux ps {name}"
    return None
