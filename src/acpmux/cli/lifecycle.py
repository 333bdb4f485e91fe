"""`hibernate`, `wake`, `stop`, `close`, `rm` and `set`."""

from typing import Any

import click

from acpmux.cli.output import json_option, print_json, session_argument
from acpmux.cli.start import POLICIES, START_BUDGET_S
from acpmux.client import connect
from acpmux.errors import UsageFault

END_BUDGET_S = 60.0  # a stop waits out a retirement under way; the host's own budgets are shorter


@click.command("hibernate", epilog="Examples:\n\n\b\n  acpmux hibernate web\n  acpmux hibernate web --json")
@session_argument
@json_option
def hibernate_command(name: str, as_json: bool) -> None:
    """Sleep now: deadline and attached clients are ignored, and nothing else.

    Refused, it names what runs; exit code 1.
    """
    told = _ask("_acpmux/hibernate", {"sessionId": name}, END_BUDGET_S)
    print_json(told) if as_json else click.echo(f"{name} sleeps. It wakes with the next prompt, or: acpmux wake {name}")


@click.command("wake", epilog="Examples:\n\n\b\n  acpmux wake web\n  acpmux wake web && acpmux send web 'go on'")
@session_argument
@json_option
def wake_command(name: str, as_json: bool) -> None:
    """Wake a session and wait until it is ready."""
    told = _ask("_acpmux/wake", {"sessionId": name}, START_BUDGET_S)
    print_json(told) if as_json else click.echo(f"{name} is awake.")


@click.command(
    "stop",
    epilog="Examples:\n\n\b\n  acpmux stop web\n  acpmux stop web --all    (and work that left its tree)",
)
@session_argument
@click.option("--all", "all_", is_flag=True, help="End work that left the agent's tree too.")
@json_option
def stop_command(name: str, all_: bool, as_json: bool) -> None:
    """End a session's agent and what runs under it; the session sleeps. Says what is left running."""
    told = _ask("_acpmux/kill", {"sessionId": name, "all": all_}, END_BUDGET_S)
    _ended(name, "stopped", told, as_json)


@click.command("close", epilog="Examples:\n\n\b\n  acpmux close web")
@session_argument
@json_option
def close_command(name: str, as_json: bool) -> None:
    """End a session for good. Its log stays until: acpmux rm NAME."""
    told = _ask("_acpmux/kill", {"sessionId": name, "close": True}, END_BUDGET_S)
    _ended(name, "closed", told, as_json)


@click.command("rm", epilog="Examples:\n\n\b\n  acpmux rm web\n  acpmux rm old-1 old-2")
@click.argument("names", nargs=-1, required=True)
@json_option
def rm_command(names: tuple[str, ...], as_json: bool) -> None:
    """End sessions and delete all that is stored of them."""
    for name in names:
        told = _ask("_acpmux/kill", {"sessionId": name, "purge": True}, END_BUDGET_S)
        _ended(name, "removed", told, as_json)


@click.command(
    "set",
    epilog="Examples:\n\n\b\n  acpmux set web --idle-after 10m\n  acpmux set web --policy approve-reads --name site",
)
@session_argument
@click.option("--name", "new_name", help="A new name.")
@click.option("--policy", type=click.Choice(POLICIES))
@click.option("--idle-after", metavar="D", help="Its own idle period: 90s, 2m, never.")
@click.option("--title")
@json_option
def set_command(
    name: str,
    new_name: str | None,
    policy: str | None,
    idle_after: str | None,
    title: str | None,
    as_json: bool,
) -> None:
    """Change what acpmux keeps of a session."""
    params = {"name": new_name, "policy": policy, "idleAfter": idle_after, "title": title}
    if not any(params.values()):
        raise UsageFault("nothing to change; see: acpmux set --help")
    told = _ask("_acpmux/set", {"sessionId": name, **params}, END_BUDGET_S)
    print_json(told) if as_json else click.echo(
        f"{told['name']}: policy {told['policy']}, idle after {told['idleAfter']}"
    )


def _ask(method: str, params: dict[str, Any], budget_s: float) -> Any:
    with connect() as connection:
        return connection.request(method, params, budget_s)


def _ended(name: str, what: str, told: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(told)
        return
    ended = told.get("ended") or ()
    click.echo(f"{name} is {what}" + (f"; ended: {len(ended)}" if ended else "; nothing of it ran") + ".")
    for process in ended:
        click.echo(f"  pid {process['pid']}  {process['command']}")
    left = told.get("left") or ()
    for process in left:
        click.echo(f"  left running: pid {process['pid']}  {process['command']}")
    if left and what == "stopped":
        click.echo(
            "  They left the agent's tree, so a stop leaves them. End them by their pids, or next time: stop --all"
        )
