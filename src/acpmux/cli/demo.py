"""`demo`: a minute in which a person sees what acpmux is for, with real processes and real megabytes."""

import json
import os
import shutil
import socket
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import click

from acpmux.cli.output import json_option, megabytes, paint, print_json
from acpmux.client import Connection, connect
from acpmux.errors import AcpmuxError

IDLE_S = 3.0  # a person does not wait two minutes in a demo
STEP_BUDGET_S = 60.0  # any one step; a loaded machine takes its time
READING_S = 1.0  # between two paragraphs


class DemoFailed(AcpmuxError):
    """A step did not hold what it promised."""

    code = "demo_failed"


@click.command("demo", epilog="Examples:\n\n\b\n  acpmux demo\n  make demo")
@json_option
def demo_command(as_json: bool) -> None:
    """A minute with the built-in agent: a session and its server, sleep, a wake that remembers, and a dev server.

    It runs in a folder of its own and leaves nothing behind.
    """
    home = Path(tempfile.mkdtemp(prefix="acpmux-demo-"))
    old = {name: os.environ.get(name) for name in ("ACPMUX_HOME", "ACPMUX_SOCKET", "ACPMUX_DEMO_HOME")}
    os.environ.pop("ACPMUX_SOCKET", None)
    os.environ["ACPMUX_HOME"] = str(home / "state")
    os.environ["ACPMUX_DEMO_HOME"] = str(home / "agent")
    try:
        facts = _Demo(home, quiet=as_json).run()
    finally:
        _clean_up(home)
        for name, value in old.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
    if as_json:
        print_json(facts)


def _clean_up(home: Path) -> None:
    try:
        with connect(start=False) as connection:
            connection.request("_acpmux/shutdown", {"endAgents": True, "all": True}, STEP_BUDGET_S)
    except AcpmuxError:
        pass  # it never came up, or is gone already
    shutil.rmtree(home, ignore_errors=True)


class _Demo:
    def __init__(self, home: Path, quiet: bool) -> None:
        self._home = home
        self._quiet = quiet
        self._session = "demo"
        self._facts: dict[str, Any] = {}
        self._connection: Connection | None = None

    @property
    def _daemon(self) -> Connection:
        assert self._connection is not None
        return self._connection

    def run(self) -> dict[str, Any]:
        """Every step, in order. Raises: DemoFailed."""
        state, work = self._home / "state", self._home / "work"
        state.mkdir(mode=0o700)
        work.mkdir()
        (state / "config.toml").write_text(f'[idle]\nafter = "{IDLE_S:g}s"\n')
        self._title("1. A session, with an MCP server of its own")
        with connect() as self._connection:
            self._start(work)
            there = self._talk()
            self._sleep(there)
            self._wake()
            self._dev_server()
            self._end()
        return self._facts

    # ------------------------------------------------------------ the steps

    def _start(self, work: Path) -> None:
        config = {"mcpServers": {"clock": {"command": sys.executable, "args": ["-m", "acpmux.agents.demo_mcp"]}}}
        extras = {
            "agent": "demo",
            "name": self._session,
            "mcpConfig": {"path": "the demo's servers", "text": json.dumps(config)},
        }
        self._say("$ acpmux new -a demo -n demo --mcp-config servers.json")
        params: dict[str, Any] = {"cwd": str(work), "mcpServers": [], "_meta": {"acpmux": extras}}
        self._daemon.request("session/new", params, STEP_BUDGET_S)

    def _talk(self) -> list[dict[str, Any]]:
        self._prompt("My name is Ada.", "Ada")
        self._prompt("What time is it?", "MCP server says")
        self._say("$ acpmux ps demo")
        there = self._processes()
        self._check(any(row["verdict"] == "server" for row in there), "the MCP server runs under the agent")
        self._show(there)
        return there

    def _sleep(self, there: list[dict[str, Any]]) -> None:
        self._title(f"2. You leave. It is idle for {IDLE_S:g} s (two minutes, unless you say otherwise)")
        self._until("hibernated")
        left = [row["pid"] for row in there if _runs(row["pid"], row["startedAt"])]
        self._check(not left, f"every process of it is gone (still there: {left})")
        freed = self._last_event("hibernated")["body"]["freedBytes"]
        self._facts["freedBytes"] = freed
        pids = ", ".join(str(row["pid"]) for row in there)
        self._say(f"It sleeps: the processes {pids} have ended, the server too. {megabytes(freed)} are free again.")
        self._say("What was said stays. An idle session costs nothing.", "dim")

    def _wake(self) -> None:
        self._title("3. You come back")
        began = time.monotonic()
        self._prompt("What is my name?", "Ada")
        took_ms = round((time.monotonic() - began) * 1000)
        woke_ms = self._last_event("woke")["body"]["tookMs"]
        self._facts |= {"wakeMs": woke_ms, "promptToReplyMs": took_ms}
        self._say(f"It woke in {woke_ms} ms and still knows you: {took_ms} ms from your prompt to its whole answer.")

    def _dev_server(self) -> None:
        self._title("4. The agent starts a dev server, and you leave again")
        port = _free_port()
        self._prompt(f"Start a dev server on port {port}", "A dev server runs")
        self._wait_for(lambda: _answers(port), "the dev server answers")
        periods = 3
        self._say(f"Now it is idle for {periods} times {IDLE_S:g} s ...", "dim")
        time.sleep(periods * IDLE_S)
        told = self._daemon.request("_acpmux/why", {"sessionId": self._session}, STEP_BUDGET_S)
        held = [hold for hold in told["holds"] if hold["kind"] == "census"]
        self._check(told["status"] == "ready" and bool(held), "the dev server keeps the session awake")
        self._check(_answers(port), "the dev server still answers")
        self._facts["heldBy"] = held[0]["command"]
        self._say("$ acpmux why demo")
        self._say(f"  held by: pid {held[0]['pid']}  {held[0]['command']}", "yellow")
        self._say(f"It was asked to sleep {told['refusals']} times and stayed. http://127.0.0.1:{port} still answers.")
        self._say("Sleeping never ends work that somebody started.", "bold")

    def _end(self) -> None:
        self._title("5. The dev server ends")
        self._prompt("Stop the dev server", "has ended")
        took_s = self._until("hibernated")
        self._facts["sleptAfterS"] = round(took_s, 1)
        self._say(f"One idle period later ({took_s:.1f} s) the session sleeps again.")
        self._title("That is acpmux")
        self._say("Next: acpmux agents   then: acpmux new -a AGENT   and: acpmux send NAME 'TEXT'")

    # ------------------------------------------------------------ parts of steps

    def _prompt(self, text: str, expected: str) -> None:
        self._say(f"$ acpmux send demo '{text}'")
        params = {
            "sessionId": self._session,
            "prompt": [{"type": "text", "text": text}],
            "_meta": {"acpmux": {"reply": True}},
        }
        answer = self._daemon.request("session/prompt", params, STEP_BUDGET_S)
        reply = answer["_meta"]["acpmux"]["reply"]
        self._say(f"  {reply}", "cyan")
        self._check(expected in reply, f"the agent answers with {expected!r}")

    def _processes(self) -> list[dict[str, Any]]:
        told = self._daemon.request("_acpmux/census", {"sessionId": self._session}, STEP_BUDGET_S)
        return told["processes"]

    def _show(self, rows: list[dict[str, Any]]) -> None:
        for row in rows:
            command = " ".join(row["argv"])[:70]
            self._say(f"  {row['pid']:>7}  {row['verdict']:<8} {megabytes(row['rssBytes']):>7}  {command}")

    def _last_event(self, kind: str) -> dict[str, Any]:
        params = {"sessionId": self._session, "kinds": [kind], "last": 1}
        return self._daemon.request("_acpmux/events", params, STEP_BUDGET_S)["events"][-1]

    def _until(self, status: str) -> float:
        began = time.monotonic()

        def there() -> bool:
            row = self._daemon.request("_acpmux/info", {"sessionId": self._session}, STEP_BUDGET_S)
            return row["status"] == status

        self._wait_for(there, f"the session comes to {status}")
        return time.monotonic() - began

    def _wait_for(self, condition: Any, what: str) -> None:
        deadline = time.monotonic() + STEP_BUDGET_S
        while not condition():
            self._check(time.monotonic() < deadline, what)
            time.sleep(0.1)

    def _check(self, holds: bool, what: str) -> None:
        if not holds:
            raise DemoFailed(f"the demo failed: it should be that {what}. See: acpmux doctor")

    def _title(self, text: str) -> None:
        if not self._quiet:
            time.sleep(READING_S)
            click.echo(f"\n{paint(text, 'bold')}")

    def _say(self, text: str, colour: str | None = None) -> None:
        if not self._quiet:
            click.echo(paint(text, colour) if colour else text)


def _runs(pid: int, started_at: str | None) -> bool:
    """True while this very process runs: a zombie does not, and a pid used again is another's."""
    from acpmux.census.table import identity_of, started_at_ms
    from acpmux.wire.mux import rfc3339

    identity = identity_of(pid)
    return (
        identity is not None
        and started_at is not None
        and rfc3339(started_at_ms(identity.start))[:19] == started_at[:19]
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=2) as reply:
            return reply.status == 200
    except (urllib.error.URLError, OSError):
        return False
