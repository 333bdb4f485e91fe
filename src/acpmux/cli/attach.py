"""`attach`: the stored conversation at once, then live; lines typed are prompts."""

import secrets
import select
import sys
from typing import Any

import click

from acpmux.cli.output import json_option, paint, print_json, session_argument
from acpmux.cli.turn import Screen
from acpmux.client import Connection, Notification, connect
from acpmux.client.connection import result_of
from acpmux.errors import AcpmuxError
from acpmux.untyped import as_list, as_object, as_text

ANSWER_BUDGET_S = 10.0  # the daemon answers at once; the wake goes on beside it
_ANSWERS = {"y": "allow", "yes": "allow", "allow": "allow", "n": "deny", "no": "deny", "deny": "deny"}


@click.command(
    "attach",
    epilog="Examples:\n\n\b\n  acpmux attach web --plain\n  acpmux attach web --plain --since 120\n"
    "  acpmux attach web --plain < /dev/null      (the transcript alone)",
)
@session_argument
@click.option("--plain", is_flag=True, help="Lines of text instead of the full-screen view.")
@click.option("--since", type=click.IntRange(0), metavar="SEQ", help="Only what came after this record.")
@json_option
def attach_command(name: str, plain: bool, since: int | None, as_json: bool) -> None:
    """Follow a session and talk to it: a sleeping one wakes.

    Each line is a prompt. Ctrl-D or /detach leaves and the session goes on; Ctrl-C cancels the running turn.
    """
    with connect() as connection:
        view = _View(connection, name, as_json)
        view.open(since or 0)
        if as_json:
            print_json(view.told)
        elif not sys.stdin.isatty():
            view.pipe()
        else:
            if not plain:
                click.echo("The full-screen view is not there yet; this is --plain.", err=True)
            view.talk()


class _View:
    def __init__(self, connection: Connection, name: str, quiet: bool) -> None:
        self._connection = connection
        self._name = name
        self._quiet = quiet
        self._screen = Screen(name, quiet)
        self._prompts: set[int] = set()
        self._running = False
        self._after = 0
        self._texts: dict[str, str] = {}
        self._typed: set[str] = set()
        self._ask: dict[str, Any] | None = None
        self.told: list[dict[str, Any]] = []

    def open(self, since: int) -> None:
        """Prints what is stored."""
        after, last = since, since + 1
        while after < last:
            params = {"sessionId": self._name, "afterSeq": after, "limit": 1000}
            answer = self._connection.request("_acpmux/events", params, ANSWER_BUDGET_S)
            for event in answer["events"]:
                self.told.append(event)
                self._stored(event)
            if not answer["events"]:
                break
            after, last = answer["events"][-1]["seq"], answer["lastSeq"]
        self._screen.end()
        self._after = after

    def _attach(self) -> None:
        """From here on the session is held awake, and a sleeping one wakes."""
        params = {"sessionId": self._name, "afterSeq": self._after}
        self._connection.request("_acpmux/attach", params, ANSWER_BUDGET_S, self._hear)

    def _stored(self, event: dict[str, Any]) -> None:
        if event["kind"] == "update":
            self._screen.hear(Notification("session/update", as_object(event["body"])))
        else:
            self._follow(event["kind"], as_object(event["body"]))

    def _follow(self, kind: str, body: dict[str, Any]) -> None:
        """Prompts are shown where their turns begin, so that each stands over its reply."""
        if kind == "prompted":
            texts = [as_text(as_object(block).get("text")) for block in as_list(body.get("prompt"))]
            self._texts[str(body.get("promptId"))] = "\n> ".join(text for text in texts if text)
        elif kind in ("turn_started", "turn_ended", "turn_failed"):
            self._running = kind == "turn_started"
            self._screen.end()
            prompt_id = str(body.get("promptId"))
            text = self._texts.pop(prompt_id, None)
            if self._running and text and prompt_id not in self._typed and not self._quiet:
                click.echo(paint(f"> {text}", "cyan"))
        elif kind == "ask_opened" and not body.get("decided"):
            self._ask = body
        elif kind == "ask_resolved":
            self._ask = None

    def _hear(self, told: Notification) -> None:
        kind = told.params.get("kind")
        self._follow(str(kind), as_object(told.params.get("body")))
        if kind == "turn_failed":
            self._screen.note(f"the turn failed: {as_object(told.params.get('body')).get('message')}")
        self._screen.hear(told)

    # ------------------------------------------------------------ typing

    def pipe(self) -> None:
        """Every line of standard input is one prompt; leaves when the last has been answered.

        Without a line it was for the transcript alone, and nothing is woken.
        """
        for number, line in enumerate(sys.stdin):
            if number == 0:
                self._attach()
            if line.strip() == "/detach":
                return
            if line.strip():
                self._send(line.strip())
                while self._prompts:
                    self._take()

    def talk(self) -> None:
        self._attach()
        self._screen.note(f"attached to {self._name}; /detach or Ctrl-D leaves, Ctrl-C cancels the turn")
        pressed = False
        while True:
            try:
                ready, _, _ = select.select([sys.stdin, self._connection.fd], [], [])
                if self._connection.fd in ready:
                    self._take()
                if sys.stdin in ready:
                    line = sys.stdin.readline()
                    if not line or line.strip() == "/detach":
                        return
                    if line.strip():
                        pressed = False
                        self._say(line.strip())
            except KeyboardInterrupt:
                if pressed or not self._running:
                    return
                pressed = True
                self._screen.note("cancelling ... (Ctrl-C again leaves)")
                self._connection.notify("session/cancel", {"sessionId": self._name})

    def _say(self, text: str) -> None:
        """A line is a prompt, or while the agent asks something its answer."""
        if self._ask is None:
            self._send(text)
            return
        ids = [option["optionId"] for option in self._ask.get("options", ())]
        choice = text if text in ids else _ANSWERS.get(text.lower())
        if choice is None:
            self._screen.note(f"the agent waits for an answer first: y, n, or one of {', '.join(ids)}")
            return
        params = {"sessionId": self._name, "askId": self._ask["askId"], "choice": choice, "by": "attach"}
        self._connection.send("_acpmux/ask_respond", params)

    def _send(self, text: str) -> None:
        prompt_id = "p" + secrets.token_hex(8)
        self._typed.add(prompt_id)
        meta = {"acpmux": {"promptId": prompt_id}}
        blocks = [{"type": "text", "text": text}]
        self._connection.notify("_acpmux/touch", {"sessionId": self._name})
        self._prompts.add(
            self._connection.send("session/prompt", {"sessionId": self._name, "prompt": blocks, "_meta": meta})
        )

    def _take(self) -> None:
        """Everything that is here now."""
        while True:
            told = self._connection.receive()
            if "method" in told:
                self._hear(Notification(told["method"], as_object(told.get("params")), told.get("id")))
            elif told.get("id") in self._prompts:
                self._prompts.discard(told["id"])
                self._finish(told)
            if not self._connection.pending():
                return

    def _finish(self, told: dict[str, Any]) -> None:
        self._screen.end()
        try:
            result_of(told)
        except AcpmuxError as error:
            self._screen.note(f"acpmux: {error.message}")
