"""`new`, `run` and `exec`: sessions begin here."""

import os
import secrets
import select
import sys
from typing import Any

import click

from acpmux.cli import turn
from acpmux.cli.output import json_option, paint, print_json
from acpmux.client import Connection, connect
from acpmux.errors import AcpmuxError, ConfigFault

START_BUDGET_S = 400.0  # two tries of 60 s to initialize and 120 s to a session; the daemon's own deadlines come first
CONFIG_BYTES = 2_000_000  # the daemon's own limit is lower, and its error says so
PIPE_BUDGET_S = 10.0  # a program that makes the servers' list
POLICIES = ("ask", "approve-reads", "approve-edits", "approve-all", "deny-all")


def _common(function: Any) -> Any:
    for option in (
        click.option("-a", "--agent", help="The agent (see: acpmux agents)."),
        click.option("-n", "--name", help="The session's name; made from the agent's when left out."),
        click.option("--cwd", type=click.Path(file_okay=False), default=".", help="Its folder (default: this one)."),
        click.option("--policy", type=click.Choice(POLICIES), help="How permissions are answered (default: ask)."),
        click.option("--idle-after", metavar="D", help="Sleep after this long idle: 90s, 2m, never."),
        click.option(
            "--mcp-config",
            type=click.Path(exists=True, dir_okay=False),
            help="More MCP servers, as in .mcp.json.",
        ),
    ):
        function = option(function)
    return function


def _one_turn(function: Any) -> Any:
    """The text of `run` and `exec`, and how its turn is waited for."""
    for option in (
        click.argument("text", nargs=-1, required=True),
        click.option("--timeout", type=float, metavar="S", help="Seconds to wait for the turn's end."),
        click.option(
            "--on-permission",
            type=click.Choice(("wait", "deny", "fail")),
            help="Default: deny when nobody can be asked.",
        ),
    ):
        function = option(function)
    return function


@click.command(
    "new",
    epilog="Examples:\n\n\b\n  acpmux new -a claude\n  acpmux new -a codex -n api --cwd ~/src/api\n"
    "  acpmux new -a claude --mcp-config .mcp.json -d 'run the tests'",
)
@_common
@click.option("-d", "--detach", is_flag=True, help="Return as soon as it has started.")
@click.argument("prompt", required=False)
@json_option
def new_command(prompt: str | None, detach: bool, as_json: bool, **options: Any) -> None:
    """Start a session; its agent starts at once. With PROMPT, its first turn begins too."""
    with connect() as connection:
        begun = _new(connection, options, prompt, None)
        name, session_id = begun["_meta"]["acpmux"]["name"], begun["sessionId"]
        if as_json:
            print_json({"sessionId": session_id, "name": name} | begun["_meta"]["acpmux"])
            return
        click.echo(f"{paint(name, 'bold')} is ready." if not prompt else f"{paint(name, 'bold')} has begun.")
        if not detach and prompt and sys.stdout.isatty():
            screen = turn.Screen(name, False)
            connection.request("_acpmux/watch", {"sessionId": session_id, "afterSeq": 0}, 10.0, screen.hear)
            prompt_id = begun["_meta"]["acpmux"]["promptId"]
            turn.prompt_turn(connection, session_id, screen, prompt, prompt_id, "wait", None)
        click.echo(
            f"Talk to it: acpmux send {name} 'TEXT'   Follow it: acpmux attach {name} --plain   See it: acpmux ls"
        )


@click.command(
    "run",
    epilog="Examples:\n\n\b\n  acpmux run -a claude 'explain this repository'\n  acpmux run -a codex --json 'hi'",
)
@_common
@_one_turn
@json_option
def run_command(
    text: tuple[str, ...], timeout: float | None, on_permission: str | None, as_json: bool, **options: Any
) -> None:
    """Start a session, prompt it, print the reply. The session stays."""
    with connect() as connection:
        sys.exit(_run(connection, options, text, timeout, on_permission, as_json))


@click.command(
    "exec",
    epilog="Examples:\n\n\b\n  acpmux exec -a claude 'write a haiku'\n  echo 'fix it' | xargs acpmux exec -a codex",
)
@_common
@_one_turn
@json_option
def exec_command(
    text: tuple[str, ...], timeout: float | None, on_permission: str | None, as_json: bool, **options: Any
) -> None:
    """As run, then remove the session: nothing is left."""
    with connect() as connection:
        made: list[str] = []
        try:
            code = _run(connection, options, text, timeout, on_permission, as_json, made)
        finally:
            for session_id in made:
                connection.request("_acpmux/kill", {"sessionId": session_id, "purge": True}, 60.0)
        sys.exit(code)


def _run(
    connection: Connection,
    options: dict[str, Any],
    text: tuple[str, ...],
    timeout: float | None,
    on_permission: str | None,
    as_json: bool,
    made: list[str] | None = None,
) -> int:
    prompt, prompt_id = turn.prompt_of(text), "p" + secrets.token_hex(8)
    wish = on_permission or ("wait" if sys.stdin.isatty() and sys.stderr.isatty() else "deny")
    try:
        begun = _new(connection, options, prompt, prompt_id, wish)
    except AcpmuxError as error:
        if made is not None and error.session_id is not None:
            made.append(error.session_id)
        raise
    name, session_id = begun["_meta"]["acpmux"]["name"], begun["sessionId"]
    if made is not None:
        made.append(session_id)
    screen = turn.Screen(name, as_json, prompt_id)
    connection.request("_acpmux/watch", {"sessionId": session_id, "afterSeq": 0}, 10.0, screen.hear)
    later = "The session is removed with its turn" if made is not None else ""
    answer = turn.prompt_turn(connection, session_id, screen, prompt, prompt_id, wish, timeout, later)
    if as_json:
        print_json(turn.reply_json(name, session_id, answer))
    return turn.exit_code(answer["_meta"]["acpmux"])


def _new(
    connection: Connection,
    options: dict[str, Any],
    prompt: str | None,
    prompt_id: str | None,
    on_permission: str | None = None,
) -> dict[str, Any]:
    extras: dict[str, Any] = {
        "agent": options["agent"],
        "name": options["name"],
        "policy": options["policy"],
        "idleAfter": options["idle_after"],
    }
    if options["mcp_config"]:
        extras["mcpConfig"] = _config_text(options["mcp_config"])
    if prompt is not None:
        blocks = [{"type": "text", "text": prompt}]
        extras["prompt"] = {"blocks": blocks, "promptId": prompt_id, "onPermission": on_permission}
    params: dict[str, Any] = {"cwd": os.path.abspath(options["cwd"]), "mcpServers": [], "_meta": {"acpmux": extras}}
    if sys.stderr.isatty():
        click.echo(paint("starting the agent ...", "dim"), err=True)
    begun: dict[str, Any] = connection.request("session/new", params, START_BUDGET_S)
    for problem in begun["_meta"]["acpmux"].get("problems", ()):
        click.echo(f"note: {problem}", err=True)
    return begun


def _config_text(path: str) -> dict[str, str]:
    try:
        return {"path": path, "text": _read(path).decode("utf-8")}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigFault(f"{path} can't be read: {error}") from None


def _read(path: str) -> bytes:
    """A file, or what a pipe brings (`--mcp-config <(...)`). Raises: OSError when nobody writes to it."""
    fd, data = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), b""
    try:
        while len(data) < CONFIG_BYTES:
            if not select.select([fd], [], [], PIPE_BUDGET_S)[0]:
                raise OSError(f"nobody wrote to it for {PIPE_BUDGET_S:g} s")
            try:
                piece = os.read(fd, CONFIG_BYTES)
            except BlockingIOError:
                continue
            if not piece:
                break
            data += piece
    finally:
        os.close(fd)
    return data
