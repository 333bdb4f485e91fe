"""The command's root: lazy commands, one place for errors and exit codes."""

import importlib
import json
import os
import sys
from typing import Any

import click

from acpmux import __version__
from acpmux.errors import AcpmuxError

# command -> (module, one line for the list); the module is imported when the command runs or is asked for help
COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("demo", "A minute with the built-in agent: a server, a dev server, sleep, wake."),
    "new": ("start", "Start a session."),
    "run": ("start", "Start a session, prompt it and print the reply."),
    "exec": ("start", "As run, then remove the session."),
    "send": ("talk", "Prompt a session; the reply streams in."),
    "last": ("talk", "Print the last replies."),
    "export": ("bundle", "Write a session and its log as one file."),
    "import": ("bundle", "Make a session of such a file."),
    "cancel": ("talk", "Cancel the running turn."),
    "attach": ("attach", "Follow a session and talk to it."),
    "ls": ("list", "List the sessions."),
    "info": ("list", "Show one session."),
    "ps": ("inspect", "Every process of a session, with what it is."),
    "why": ("inspect", "Why a session is awake, or how it came to sleep."),
    "hibernate": ("lifecycle", "Put a session to sleep now, unless work is under way."),
    "wake": ("lifecycle", "Wake a session."),
    "stop": ("lifecycle", "End a session's agent; the session sleeps."),
    "close": ("lifecycle", "End a session for good; its log stays."),
    "rm": ("lifecycle", "End a session and delete it."),
    "set": ("lifecycle", "Change a session's name, policy, period or title."),
    "pending": ("asks", "Questions that wait for an answer."),
    "allow": ("asks", "Allow what an agent asks."),
    "deny": ("asks", "Deny what an agent asks."),
    "agents": ("agents", "Which agents are installed, and how to get the others."),
    "doctor": ("doctor", "Check this machine and say what would be missing."),
    "daemon": ("daemon", "Run, start, look at and end the daemon."),
    "completion": ("completion", "Print the completion script for bash, zsh or fish."),
}


class LazyGroup(click.Group):
    """Lists every command from the table above and imports only the one that is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"acpmux.cli.{COMMANDS[cmd_name][0]}")
        return getattr(module, f"{cmd_name}_command")

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib

            meant = {"help": "--help", "kill": "stop", "start": "new", "list": "ls", "status": "ls"}.get(args[0])
            near = [meant] if meant else difflib.get_close_matches(args[0], COMMANDS, 2)
            hint = f" Did you mean {' or '.join(near)}?" if near else ""
            raise click.UsageError(f"no command {args[0]!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Start with: acpmux demo",
)
@click.version_option(__version__, prog_name="acpmux")
def cli() -> None:
    """tmux for coding agents: durable sessions that cost nothing while idle, and never end work somebody started."""


def run() -> None:
    """Runs the command and ends the process with the contract's exit code."""
    wants_json, output = "--json" in sys.argv, sys.stdout
    if not wants_json and "export" not in sys.argv[1:2]:
        from acpmux.cli.safe import for_people
        from acpmux.client import Connection

        Connection.mend = for_people
    try:
        code = cli.main(standalone_mode=False, prog_name="acpmux")
        sys.stdout.flush()
    except SystemExit:
        if sys.stdout is output:
            raise
        code = 0  # click has put a stand-in there: the reader of our output has seen enough
    except click.exceptions.Exit as leave:
        code = leave.exit_code
    except click.UsageError as error:
        code = 2
        if wants_json:
            _print_error({"code": "usage", "message": error.format_message()})
        else:
            error.show()
    except (click.Abort, KeyboardInterrupt):
        code = 130
    except AcpmuxError as error:
        code = error.exit_code
        _tell(error, wants_json)
    except BrokenPipeError:  # the reader of our output has seen enough
        _drop_output()
        code = 0
    except OSError as error:
        _drop_output()
        code = 1
        click.echo(f"acpmux: {error.strerror or error}: {error.filename or 'the output'}", err=True)
    sys.exit(code if isinstance(code, int) else 0)


def _drop_output() -> None:
    """What is still to be printed goes nowhere: the interpreter would try again at its end, and fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _tell(error: AcpmuxError, wants_json: bool) -> None:
    if wants_json:
        told: dict[str, Any] = {
            "code": error.code,
            "message": error.message,
            "detail": error.detail,
            "sessionId": error.session_id,
            "retryable": error.retryable,
        }
        _print_error(told | ({"blockers": error.blockers} if error.blockers else {}))
        return
    click.echo(f"acpmux: {error.message}", err=True)
    for blocker in error.blockers:
        pid = f"pid {blocker['pid']}  " if blocker.get("pid") else ""
        click.echo(f"  {pid}{blocker['command']}  ({blocker['why']})", err=True)


def _print_error(told: dict[str, Any]) -> None:
    full = {"detail": None, "sessionId": None, "retryable": False} | told
    click.echo(json.dumps({"error": full}), err=True)
