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
from acpmux.errors import AcpmuxError, StateFault
from acpmux.untyped import as_list, as_object, as_text

ANSWER_BUDGET_S = 10.0  # the daemon answers at once; the wake goes on beside it


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
    if not plain and not as_json:
        raise StateFault("the full-screen view is not there yet; use: acpmux attach --plain")
    with connect() as connection:
        view = _View(connection, name, as_json)
        view.open(since or 0)
        if as_json:
            print_json(view.told)
        elif not sys.stdin.isatty():
            view.pipe()
        else:
            view.talk()


class _View:
    def __init__(self, connection: Connection, name: str, quiet: bool) -> None:
        self._connection = connection
        self._name = name
        self._quiet = quiet
        self._screen = Screen(name, quiet)
        self._prompts: set[int] = set()
        self._running = False
        self.told: list[dict[str, Any]] = []

    def open(self, since: int) -> None:
        """Prints what is stored, then attaches behind it: nothing is missed or shown twice."""
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
        self._connection.request(
            "_acpmux/attach", {"sessionId": self._name, "afterSeq": after}, ANSWER_BUDGET_S, self._hear
        )

    def _stored(self, event: dict[str, Any]) -> None:
        if event["kind"] == "update":
            self._screen.hear(Notification("session/update", as_object(event["body"])))
        elif event["kind"] == "prompted" and not self._quiet:
            self._screen.end()
            texts = [as_text(as_object(block).get("text")) for block in as_list(event["body"].get("prompt"))]
            click.echo(paint("> " + "\n> ".join(text for text in texts if text), "cyan"))
        elif event["kind"] in ("turn_ended", "turn_failed"):
            self._screen.end()

    def _hear(self, told: Notification) -> None:
        kind = told.params.get("kind")
        if kind in ("turn_started", "turn_ended", "turn_failed"):
            self._running = kind == "turn_started"
            if not self._running:
                self._screen.end()
        if kind == "turn_failed":
            self._screen.note(f"the turn failed: {as_object(told.params.get('body')).get('message')}")
        self._screen.hear(told)

    # ------------------------------------------------------------ typing

    def pipe(self) -> None:
        """Every line of standard input is one prompt; leaves when the last has been answered."""
        for line in sys.stdin:
            if line.strip():
                self._send(line.strip())
                while self._prompts:
                    self._take()

    def talk(self) -> None:
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
                        self._send(line.strip())
            except KeyboardInterrupt:
                if pressed or not self._running:
                    return
                pressed = True
                self._screen.note("cancelling ... (Ctrl-C again leaves)")
                self._connection.notify("session/cancel", {"sessionId": self._name})

    def _send(self, text: str) -> None:
        meta = {"acpmux": {"promptId": "p" + secrets.token_hex(8)}}
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
