"""One turn on the screen: its text as it comes, its tools and questions in a dim line, then how it ended."""

import sys
import time
from typing import Any

import click

from acpmux.cli.output import paint
from acpmux.client import Connection, Notification
from acpmux.errors import AcpmuxError, BudgetSpent, UsageFault
from acpmux.untyped import as_object, as_text

ALL_DENIED = 5  # the contract's exit code for a turn whose every permission was denied
CANCEL_BUDGET_S = 10.0  # an agent ends a cancelled turn in half a second


class Screen:
    """Prints what is heard of a session. `quiet` prints nothing; `prompt_id` leaves out other prompts' turns."""

    def __init__(self, name: str, quiet: bool, prompt_id: str | None = None) -> None:
        self._name = name
        self._quiet = quiet
        self._prompt_id = prompt_id
        self._mine = prompt_id is None
        self._open_line = False
        self._woke_at: float | None = None
        self.spoke = False

    @property
    def name(self) -> str:
        return self._name

    def hear(self, told: Notification) -> None:
        if self._quiet:
            return
        if told.method == "session/update" and self._mine:
            self._update(as_object(told.params.get("update")))
        elif told.method == "_acpmux/event":
            self._event(told.params)

    def end(self) -> None:
        if self._open_line:
            click.echo()
            self._open_line = False

    def note(self, text: str) -> None:
        """A dim line beside the reply: on the error stream, so that a pipe gets the reply alone."""
        self.end()
        click.echo(paint(text, "dim") if sys.stderr.isatty() else text, err=True)

    def _update(self, update: dict[str, Any]) -> None:
        kind = update.get("sessionUpdate")
        if kind == "agent_message_chunk":
            text = as_text(as_object(update.get("content")).get("text"))
            if text:
                self.spoke = True
                click.echo(text, nl=False)
                self._open_line = not text.endswith("\n")
        elif kind == "tool_call":
            self.note(f"[{update.get('kind') or 'tool'}] {update.get('title') or ''}")

    def _event(self, params: dict[str, Any]) -> None:
        body, kind = as_object(params.get("body")), params.get("kind")
        if kind == "turn_started":
            self._mine = self._prompt_id in (None, body.get("promptId"))
        elif kind == "waking":
            self._woke_at = time.monotonic()
            self.note("waking ...")
        elif kind == "woke" and self._woke_at is not None:
            self.note(f"awake after {time.monotonic() - self._woke_at:.1f} s")
        elif kind == "ask_opened":
            options = ", ".join(option["optionId"] for option in body.get("options", ()))
            self.note(f"the agent asks: {body.get('title')}   ({options})")
            if not body.get("decided"):
                self.note(f"answer it with: acpmux allow {self._name}   or: acpmux deny {self._name}")
        elif kind == "ask_resolved":
            self.note(f"{body.get('outcome')} by {body.get('by')}")
        elif kind == "hibernated":
            self.note("it sleeps; the next prompt wakes it")
        elif kind == "turn_ended" and body.get("stopReason") not in ("end_turn", None):
            self.note(f"the turn ended: {body['stopReason']}")


def prompt_turn(
    connection: Connection,
    session_id: str,
    screen: Screen,
    text: str,
    prompt_id: str,
    on_permission: str,
    budget_s: float | None,
    later: str = "",
) -> dict[str, Any]:
    """Sends one prompt, prints its turn, and returns the answer.

    Ctrl-C cancels this prompt's turn, or takes the prompt back from the queue; a second one leaves at once. `later` is
    what a person can do when the budget is spent.

    Raises: AcpmuxError; BudgetSpent after the budget, with the turn going on.
    """
    meta = {"promptId": prompt_id, "onPermission": on_permission, "reply": True}
    params = {
        "sessionId": session_id,
        "prompt": [{"type": "text", "text": text}],
        "_meta": {"acpmux": meta},
    }
    try:
        return connection.request("session/prompt", params, budget_s, screen.hear)
    except BudgetSpent:
        screen.end()
        raise BudgetSpent(
            f"no reply within {budget_s:g} s. " + (later or f"It goes on; its reply, later: acpmux last {screen.name}")
        ) from None
    except KeyboardInterrupt:
        _cancel(connection, session_id, screen, prompt_id)
        raise
    finally:
        screen.end()


def _cancel(connection: Connection, session_id: str, screen: Screen, prompt_id: str) -> None:
    """Asks for the end of the turn and waits a little for it, so that its last words are seen."""
    screen.note("cancelling ... (Ctrl-C again leaves at once)")
    connection.notify("session/cancel", {"sessionId": session_id, "_meta": {"acpmux": {"promptId": prompt_id}}})
    deadline = time.monotonic() + CANCEL_BUDGET_S
    try:
        while True:
            told = connection.notification(deadline)
            if told is None:
                return
            screen.hear(told)
    except AcpmuxError:
        return


def prompt_of(words: tuple[str, ...]) -> str:
    """The prompt of a command line: its words, or standard input for "-". Raises: UsageFault when it is empty."""
    text = sys.stdin.read() if words == ("-",) else " ".join(words)
    if not text.strip():
        raise UsageFault("the prompt is empty")
    return text


def exit_code(meta: dict[str, Any]) -> int:
    """5 when the turn asked for permissions and every one was denied."""
    return ALL_DENIED if meta["asked"] and meta["asked"] == meta["denied"] else 0


def reply_json(name: str, session_id: str, answer: dict[str, Any]) -> dict[str, Any]:
    """The contract's value of `send --json` and `run --json`."""
    meta = answer["_meta"]["acpmux"]
    return {
        "sessionId": session_id,
        "name": name,
        "promptId": meta["promptId"],
        "reply": meta.get("reply", ""),
        "stopReason": answer.get("stopReason"),
        "asked": meta["asked"],
        "denied": meta["denied"],
    }
