"""`send`, `last` and `cancel`."""

import secrets
import sys
from typing import Any

import click

from acpmux.cli import turn
from acpmux.cli.output import json_option, print_json, session_argument
from acpmux.client import Connection, connect
from acpmux.errors import StateFault
from acpmux.untyped import as_object, as_text

ANSWER_BUDGET_S = 10.0  # the daemon answers from its log
LEAST_BUDGET_S = 1.0  # before the prompt is sent: what is left of a shorter one says nothing of the daemon


@click.command(
    "send",
    epilog="Examples:\n\n\b\n  acpmux send web 'add a test'\n  acpmux send web --no-wait 'run everything'\n"
    "  git diff | acpmux send web -\n  acpmux send web --json --timeout 60 'status?'",
)
@session_argument
@click.argument("text", nargs=-1, required=True)
@click.option("--no-wait", is_flag=True, help="Return once the prompt is stored.")
@click.option("--steer", is_flag=True, help="Into the running turn, where the agent can take it.")
@click.option("--timeout", type=float, metavar="S", help="Seconds to wait for the turn's end; exit code 3 then.")
@click.option("--prompt-id", metavar="ID", help="Runs once: a repeat gets the first outcome.")
@click.option("--on-permission", type=click.Choice(("wait", "deny", "fail")), default="wait", show_default=True)
@json_option
def send_command(
    name: str,
    text: tuple[str, ...],
    no_wait: bool,
    steer: bool,
    timeout: float | None,
    prompt_id: str | None,
    on_permission: str,
    as_json: bool,
) -> None:
    """Prompt a session; the reply streams in. A sleeping session wakes. TEXT "-" reads it from standard input."""
    if steer:
        raise StateFault("no agent here can take a prompt into its running turn yet; without --steer it queues")
    prompt = turn.prompt_of(text)
    prompt_id = prompt_id or "p" + secrets.token_hex(8)
    answer_s = ANSWER_BUDGET_S if timeout is None else min(ANSWER_BUDGET_S, max(timeout, LEAST_BUDGET_S))
    with connect() as connection:
        if no_wait:
            blocks = [{"type": "text", "text": prompt}]
            params = {
                "sessionId": name,
                "prompt": blocks,
                "promptId": prompt_id,
                "onPermission": on_permission,
            }
            told = connection.request("_acpmux/prompt", params, answer_s)
            if as_json:
                print_json(told)
            else:
                click.echo(f"{told['state']} ({told['promptId']})")
            return
        watched = connection.request("_acpmux/watch", {"sessionId": name}, answer_s)
        session_id = watched["sessionId"]
        screen = turn.Screen(name, as_json, prompt_id)
        row = connection.request("_acpmux/info", {"sessionId": session_id}, answer_s, screen.hear)
        ahead = row["queued"] + (row["status"] in ("running", "waiting"))
        if ahead and not as_json:
            screen.note(f"queued behind {ahead} prompt{'s' if ahead > 1 else ''}; Ctrl-C takes it back")
        answer = turn.prompt_turn(connection, session_id, screen, prompt, prompt_id, on_permission, timeout)
        if not as_json and not screen.spoke and answer["_meta"]["acpmux"].get("reply"):
            click.echo(answer["_meta"]["acpmux"]["reply"])  # the outcome of an earlier prompt with this id
        if as_json:
            row = connection.request("_acpmux/info", {"sessionId": session_id}, ANSWER_BUDGET_S)
            print_json(turn.reply_json(row["name"], session_id, answer))
    sys.exit(turn.exit_code(answer["_meta"]["acpmux"]))


@click.command("last", epilog="Examples:\n\n\b\n  acpmux last web\n  acpmux last web -n 3 --json")
@session_argument
@click.option("-n", "count", type=click.IntRange(1, 100), default=1, show_default=True, help="How many turns.")
@json_option
def last_command(name: str, count: int, as_json: bool) -> None:
    """Print the last replies, asleep or not; nothing is woken."""
    with connect() as connection:
        params = {
            "sessionId": name,
            "kinds": ["turn_started", "turn_ended", "turn_failed"],
            "last": 3 * count,
        }
        found = connection.request("_acpmux/events", params, ANSWER_BUDGET_S)["events"]
        ids = list(dict.fromkeys(event["promptId"] for event in found))[-count:]
        turns = [_turn(connection, name, prompt_id, found) for prompt_id in ids]
    if as_json:
        print_json(turns)
        return
    if not turns:
        click.echo(f"{name} has had no turn yet. Prompt it: acpmux send {name} 'TEXT'")
    for told in turns:
        click.echo(told["reply"] or f"({told['stopReason'] or told['error'] or 'no text yet'})")


def _turn(connection: Connection, name: str, prompt_id: str, found: list[dict[str, Any]]) -> dict[str, Any]:
    mine = [event for event in found if event["promptId"] == prompt_id]
    first = min(event["seq"] for event in mine)
    after, reply = first - 1, ""
    end: dict[str, Any] | None = None
    while end is None:
        params = {"sessionId": name, "afterSeq": after, "limit": 1000}
        events = connection.request("_acpmux/events", params, ANSWER_BUDGET_S)["events"]
        if not events:
            break
        after = events[-1]["seq"]
        for event in events:
            if event["promptId"] != prompt_id:
                continue
            if event["kind"] == "update":
                update = as_object(event["body"].get("update"))
                if update.get("sessionUpdate") == "agent_message_chunk":
                    reply += as_text(as_object(update.get("content")).get("text")) or ""
            elif event["kind"] in ("turn_ended", "turn_failed"):
                end = event
                break
    body: dict[str, Any] = end["body"] if end else {}
    return {
        "promptId": prompt_id,
        "reply": reply,
        "stopReason": body.get("stopReason"),
        "error": body.get("message"),
        "at": end["at"] if end else None,
    }


@click.command("cancel", epilog="Examples:\n\n\b\n  acpmux cancel web\n  acpmux cancel @")
@session_argument
@json_option
def cancel_command(name: str, as_json: bool) -> None:
    """Cancel the running turn; without one, the prompts that have not begun. Processes of earlier turns live on."""
    with connect() as connection:
        row = connection.request("_acpmux/info", {"sessionId": name}, ANSWER_BUDGET_S)
        connection.notify("session/cancel", {"sessionId": row["sessionId"]})
        connection.request("_acpmux/status", {}, ANSWER_BUDGET_S)  # in order behind the cancel: it has arrived
    busy = row["status"] in ("running", "waiting") or row["queued"] > 0
    if as_json:
        print_json({"sessionId": row["sessionId"], "cancelled": busy})
    else:
        click.echo("cancelled" if busy else "nothing was running")
