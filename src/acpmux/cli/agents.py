"""`agents`: which are here, and how to get the others."""

import click

from acpmux.cli.output import json_option, paint, print_json
from acpmux.client import connect

ANSWER_BUDGET_S = 10.0  # a walk over PATH


@click.command(
    "agents",
    epilog="Examples:\n\n\b\n  acpmux agents\n  acpmux agents --json | jq -r '.[] | select(.installed) | .name'",
)
@json_option
def agents_command(as_json: bool) -> None:
    """Which agents are installed, and how to install the others."""
    with connect() as connection:
        rows = connection.request("_acpmux/agents", {}, ANSWER_BUDGET_S)["agents"]
    if as_json:
        print_json(rows)
        return
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        if row["installed"]:
            mark, told = paint("installed", "green"), row["program"]
        else:
            mark, told = paint("not here ", "dim"), row["install"] or f"its program: {row['command'][0]}"
        click.echo(
            f"{row['name'].ljust(width)}  {mark}  {row['title']}\n{' ' * width}             {paint(told, 'dim')}"
        )
    click.echo("\nStart one: acpmux new -a NAME      Your own: [agents.NAME] command = [...] in config.toml")
