"""`daemon run|start|status|shutdown|config`; `install` and `uninstall` are in `service.py`."""

import json
import os
import sys
from typing import Any

import click

from acpmux.cli import service
from acpmux.cli.output import columns, json_option, megabytes, print_json
from acpmux.client import connect
from acpmux.errors import DaemonUnreachable
from acpmux.paths import Paths

ANSWER_BUDGET_S = 10.0  # the daemon answers from memory
SHUTDOWN_BUDGET_S = 120.0  # every agent gets its grace, four at a time


@click.group("daemon", epilog="Examples:\n\n\b\n  acpmux daemon status\n  acpmux daemon shutdown --end-agents")
def daemon_command() -> None:
    """Run, start, look at and end the daemon. It starts by itself with the first command."""


@daemon_command.command("run", epilog="Examples:\n\n\b\n  acpmux daemon run      (Ctrl-C ends it)")
@json_option
def run_command(as_json: bool) -> None:
    """Run it in the foreground."""
    from acpmux.daemon import run

    sys.exit(run())


@daemon_command.command("start", epilog="Examples:\n\n\b\n  acpmux daemon start")
@json_option
def start_command(as_json: bool) -> None:
    """Start it in the background, unless it runs."""
    with connect() as connection:
        told = connection.request("_acpmux/status", {}, ANSWER_BUDGET_S)
    print_json(told) if as_json else click.echo(f"The daemon runs (pid {told['pid']}).")


@daemon_command.command("status", epilog="Examples:\n\n\b\n  acpmux daemon status --json")
@json_option
def status_command(as_json: bool) -> None:
    """Whether it runs, since when, with how many sessions and how much memory. Exit code 1 when it does not."""
    try:
        with connect(start=False) as connection:
            told: dict[str, Any] = connection.request("_acpmux/status", {}, ANSWER_BUDGET_S)
    except DaemonUnreachable as error:
        if as_json:
            raise
        click.echo(f"No daemon runs: {error.message}\nservice: {service.beside()[0]}")
        sys.exit(1)
    line, unit = service.beside(told["pid"])
    if as_json:
        print_json({**told, "unit": unit})
        return
    by_status = ", ".join(f"{count} {status}" for status, count in told["sessions"]["byStatus"].items()) or "none"
    click.echo(f"acpmux {told['version']}, pid {told['pid']}, since {told['startedAt']}, {megabytes(told['rssBytes'])}")
    for agent in dict.fromkeys(one["agent"] for one in told["pool"]):
        ready = [one for one in told["pool"] if one["agent"] == agent]
        click.echo(f"kept ready: {len(ready)} {agent}, {megabytes(sum(one['rssBytes'] for one in ready))}")
    if told["unknown"]:
        pids = ", ".join(str(row["pid"]) for row in told["unknown"])
        click.echo(f"of sessions that are not known: pid {pids}; end them: acpmux daemon shutdown --end-agents")
    click.echo(f"sessions: {by_status}\nhome: {told['home']}\nsocket: {told['socket']}\nservice: {line}")


@daemon_command.command(
    "shutdown", epilog="Examples:\n\n\b\n  acpmux daemon shutdown\n  acpmux daemon shutdown --end-agents"
)
@click.option("--end-agents", is_flag=True, help="End every agent, also one with work under it.")
@click.option("--all", "all_", is_flag=True, help="With --end-agents: work that left an agent's tree too.")
@json_option
def shutdown_command(end_agents: bool, all_: bool, as_json: bool) -> None:
    """End the daemon. Agents run on, turns too, and the next daemon takes them over.

    With --end-agents they are ended first, whatever runs under them.
    """
    with connect(start=False) as connection:
        told = connection.request("_acpmux/shutdown", {"endAgents": end_agents, "all": all_}, SHUTDOWN_BUDGET_S)
    if as_json:
        print_json(told)
    elif not told["left"]:
        on = told.get("running") or 0
        click.echo("The daemon has ended." + (f" {on} agent(s) run on, until: acpmux daemon start" if on else ""))
    else:
        for row in told["left"]:
            click.echo(f"{row['name']}: {row['reason']}")
        click.echo("The daemon runs on. End them too: acpmux daemon shutdown --end-agents")
    sys.exit(1 if told["left"] else 0)


@daemon_command.command(
    "config",
    epilog="Examples:\n\n\b\n  $EDITOR $(acpmux daemon config)\n  acpmux daemon config --values",
)
@click.option(
    "--values", is_flag=True, help="Print every value that a daemon starting now takes, and where it is from."
)
@json_option
def config_command(values: bool, as_json: bool) -> None:
    """Print where config.toml is looked for. It is read when the daemon starts."""
    path = str(Paths.find(os.environ).config_file)
    if not values:
        print_json({"path": path, "exists": os.path.exists(path)}) if as_json else click.echo(path)
        return
    from acpmux.daemon import config_in_force

    told = config_in_force()
    if as_json:
        rows = [{"key": key, "value": value, "source": source} for key, value, source in told]
        print_json({"path": path, "exists": os.path.exists(path), "values": rows})
    else:
        columns(("KEY", "VALUE", "FROM"), [(key, json.dumps(value), source) for key, value, source in told])


daemon_command.add_command(service.install_command)
daemon_command.add_command(service.uninstall_command)
