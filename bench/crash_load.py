"""The load of `bench/crash.py`: sessions used in every way that leads to a record, and clients that follow them all along."""

import json
import random
import threading
import time
from collections import Counter
from typing import Any

from acpmux.client import Connection, connect
from acpmux.errors import AcpmuxError, BudgetSpent

UPDATES = 200  # of a long turn, a third of a second's worth
ANSWER_BUDGET_S = 60.0
SETTLE_BUDGET_S = 120.0


class Load(threading.Thread):
    """Uses the sessions until `over`, over every daemon. `asked` are the prompts that were accepted."""

    def __init__(self, names: list[str], folder: str, rng: random.Random) -> None:
        super().__init__(daemon=True)
        self.names, self.asked, self.faults = names, list[str](), Counter[str]()
        self.over = threading.Event()
        self._folder, self._rng = folder, rng
        self._connection: Connection | None = None
        self._made = self._prompts = 0

    def run(self) -> None:
        while not self.over.is_set():
            for row in self.rows():
                if row["name"] in self.names:
                    self._use(row)
            if self._rng.random() < 0.1:
                self._short_life()

    def rows(self) -> list[dict[str, Any]]:
        return (self._ask("_acpmux/sessions") or {"sessions": []})["sessions"]

    def settle(self) -> None:
        """Waits until nothing is left to do."""
        until = time.monotonic() + SETTLE_BUDGET_S
        for row in self.rows():
            if row["name"] not in self.names:  # a short life that a kill interrupted
                self._ask("_acpmux/kill", sessionId=row["name"], purge=True)
        while busy := [
            row for row in self.rows() if row["queued"] or row["status"] not in ("ready", "hibernated", "closed")
        ]:
            if time.monotonic() > until:
                self.faults["session that never came to rest"] += len(busy)
                return
            for row in busy:
                self._help_on(row)
            time.sleep(0.2)

    def new(self, agent: str, name: str, text: str | None = None) -> bool:
        extras: dict[str, Any] = {"agent": agent, "name": name}
        if text is not None:
            extras["prompt"] = {"blocks": [{"type": "text", "text": text}]}
        return bool(self._ask("session/new", cwd=self._folder, mcpServers=[], _meta={"acpmux": extras}))

    # ------------------------------------------------------------ one thing

    def _use(self, row: dict[str, Any]) -> None:
        name = row["name"]
        if row["status"] in ("ready", "hibernated") and not row["queued"]:
            self._deed(name)
        elif row["status"] == "running" and self._rng.random() > 0.2:
            time.sleep(0.01)
        else:
            self._help_on(row)

    def _help_on(self, row: dict[str, Any]) -> None:
        """What a person would do about a session that waits."""
        name = row["name"]
        if row["asks"]:
            self._ask("_acpmux/ask_respond", sessionId=name, choice=self._rng.choice(("allow", "deny")), by="bench")
        elif row["status"] == "hibernated":  # a daemon start wakes nothing, so somebody must
            self._ask("_acpmux/wake", sessionId=name)
        elif row["status"] == "running":
            self._cancel(name)

    def _deed(self, name: str) -> None:
        ways: list[tuple[int, list[dict[str, Any]] | tuple[str, dict[str, Any]]]] = [
            (6, [{"do": "ticks", "count": UPDATES, "per_second": 600}]),
            (2, [{"do": "ask"}]),
            (
                2,
                [
                    {
                        "do": "raw",
                        "line": '{"jsonrpc":"2.0","id":900,"method":"fs/read_text_file","params":{"path":"/x"}}',
                    }
                ],
            ),
            (2, [{"do": "fail", "code": -32000, "message": "no"}]),
            (1, [{"do": "exit", "code": 3}]),
            (2, [{"do": "cancelled"}]),
            (2, [{"do": "spawn", "command": ["sleep", "0.5"], "quiet": True}]),
            (3, ("_acpmux/hibernate", {})),
            (2, ("_acpmux/wake", {})),
            (1, ("_acpmux/kill", {"all": False})),
            (1, ("_acpmux/set", {"policy": "ask"})),
            (2, ("session/set_mode", {"modeId": "plan"})),
        ]
        deed = self._rng.choices([way for _, way in ways], [weight for weight, _ in ways])[0]
        if isinstance(deed, tuple):
            self._ask(deed[0], sessionId=name, **deed[1])
            return
        self._prompts += 1
        prompt_id = f"{name}-{self._prompts}"
        blocks = [{"type": "text", "text": json.dumps([*deed, {"do": "say", "text": f"end {prompt_id}"}])}]
        if self._ask("_acpmux/prompt", sessionId=name, prompt=blocks, promptId=prompt_id):
            self.asked.append(prompt_id)
        if deed[0]["do"] == "cancelled":
            self._cancel(name)
        elif deed[0]["do"] == "spawn":
            self._ask("_acpmux/hibernate", sessionId=name)

    def _cancel(self, name: str) -> None:
        session_id = (self._ask("_acpmux/info", sessionId=name) or {}).get("sessionId")
        if session_id and self._connection is not None:
            try:
                self._connection.notify("session/cancel", {"sessionId": session_id})
            except AcpmuxError:
                self._connection = None

    def _short_life(self) -> None:
        """A session that is made, closed and removed again; and one whose agent can't be started."""
        self._made += 1
        if self._rng.random() < 0.5:
            self.new("scripted", f"t{self._made}")
            self._ask("_acpmux/kill", sessionId=f"t{self._made}", close=True)
            self._ask("_acpmux/kill", sessionId=f"t{self._made}", purge=True)
        else:
            self.new("broken", f"b{self._made}", "hello")
            self._ask("_acpmux/kill", sessionId=f"b{self._made}", purge=True)

    def _ask(self, method: str, **params: Any) -> Any:
        """The answer, None for an error. The next daemon is started by whoever asks next."""
        try:
            if self._connection is None:
                self._connection = connect()
            return self._connection.request(method, params, ANSWER_BUDGET_S)
        except BudgetSpent:
            self.faults[f"no answer to {method}"] += 1
        except AcpmuxError as error:
            if error.code != "daemon_unreachable":
                return None
        if self._connection is not None:
            self._connection.close()
        self._connection = None
        return None


class Follower(threading.Thread):
    """A client that follows one session over every daemon; `faults` counts what it got otherwise than once."""

    def __init__(self, socket_path: str, session_id: str) -> None:
        super().__init__(daemon=True)
        self._socket_path, self.session_id = socket_path, session_id
        self.seq = 0
        self.faults: Counter[str] = Counter()
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.is_set():
            try:
                with Connection(self._socket_path) as connection:
                    connection.send("_acpmux/watch", {"sessionId": self.session_id, "afterSeq": self.seq})
                    while not self.over.is_set():
                        self._hear(connection.receive(time.monotonic() + 30))
            except AcpmuxError:
                self.over.wait(0.05)

    def _hear(self, told: dict[str, Any]) -> None:
        params = told.get("params") or {}
        seq = params.get("seq") or params.get("_meta", {}).get("acpmux", {}).get("seq")
        if seq is None:
            return
        self.faults["client: a seq twice"] += seq <= self.seq
        self.faults["client: a seq missing"] += seq > self.seq + 1
        self.seq = max(self.seq, seq)
