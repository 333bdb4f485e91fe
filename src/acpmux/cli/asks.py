"""`pending`, `allow` and `deny`: questions to a person."""

import click

from acpmux.cli.output import json_option, print_json, session_argument
from acpmux.client import connect

ANSWER_BUDGET_S = 10.0  # the daemon decides at once


@click.command("pending", epilog="Examples:\n\n\b\n  acpmux pending\n  acpmux pending --json")
@json_option
def pending_command(as_json: bool) -> None:
    """List the questions that wait for an answer."""
    with connect() as connection:
        rows = connection.request("_acpmux/pending", {}, ANSWER_BUDGET_S)["pending"]
    if as_json:
        print_json(rows)
        return
    if not rows:
        click.echo("Nothing waits for an answer.")
    for row in rows:
        options = ", ".join(f"{o['optionId']} ({o['name']})" for o in row["options"])
        click.echo(f"{row['name']}  {row['askId']}  {row['title']}\n    options: {options}")
    if rows:
        click.echo("Answer with: acpmux allow NAME [OPTION]   or: acpmux deny NAME")


@click.command("allow", epilog="Examples:\n\n\b\n  acpmux allow web\n  acpmux allow web allow-always --ask a12-0")
@session_argument
@click.argument("option", required=False)
@click.option("--ask", "ask_id", metavar="ID", help="Which question (default: the oldest).")
@json_option
def allow_command(name: str, option: str | None, ask_id: str | None, as_json: bool) -> None:
    """Allow what an agent asks: once, or by an OPTION of `acpmux pending`."""
    _answer(name, option or "allow", ask_id, as_json)


@click.command("deny", epilog="Examples:\n\n\b\n  acpmux deny web\n  acpmux deny web --ask a12-0")
@session_argument
@click.option("--ask", "ask_id", metavar="ID", help="Which question (default: the oldest).")
@json_option
def deny_command(name: str, ask_id: str | None, as_json: bool) -> None:
    """Deny what an agent asks."""
    _answer(name, "deny", ask_id, as_json)


def _answer(name: str, choice: str, ask_id: str | None, as_json: bool) -> None:
    params = {"sessionId": name, "askId": ask_id, "choice": choice, "by": "cli"}
    with connect() as connection:
        told = connection.request("_acpmux/ask_respond", params, ANSWER_BUDGET_S)
    print_json(told) if as_json else click.echo(f"answered {told['askId']}: {told['optionId'] or 'cancelled'}")
