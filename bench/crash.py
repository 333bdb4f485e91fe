"""Daemons and hosts killed with -9 under load, and the books compared: `python bench/crash.py [--random 30] [--records 2] [--hosts 15]
[--both 5] [--seed 1]`, also `make crash`.

`--random` daemons die at any moment, `--records` right behind each kind of record when it is on the disk and before anybody hears of
it, `--hosts` hosts at any moment, `--both` a daemon and a host together. The load uses sessions in every way that leads to a record;
a client follows each session over all daemons. Exits 1 for any fault.
"""

import argparse
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "bench")]

from crash_load import UPDATES, Follower, Load  # noqa: E402

from acpmux.census.table import carriers  # noqa: E402
from acpmux.model.record import Kind  # noqa: E402
from kit.product import COMMAND, Product  # noqa: E402

SESSIONS = 4
REACH_S = 60.0  # each kind comes up in a few steps of the load
FAULTS: Counter[str] = Counter()
TURNS: Counter[str] = Counter()
KILLED: Counter[str] = Counter()


class Run:
    def __init__(self, product: Product, rng: random.Random) -> None:
        self.product, self.rng = product, rng
        self.names = [f"s{number}" for number in range(SESSIONS)]
        self.load = Load(self.names, str(product.folder), random.Random(rng.random()))
        self.followers: list[Follower] = []

    def begin(self) -> None:
        for name in self.names:
            assert self.load.new("scripted", name)
        for row in self.load.rows():
            self.followers.append(Follower(str(self.product.home / "acpmux.sock"), row["sessionId"]))
            self.followers[-1].start()
        self.load.start()

    def rest(self) -> None:
        self.load.over.set()
        self.load.join()
        self.load.settle()
        FAULTS.update(self.load.faults)

    # ------------------------------------------------------------ killing

    def kill(self, what: str) -> None:
        """One kill of this kind, at a moment of the load."""
        if what in ("random", "host", "both"):
            who = {"random": (self._daemon,), "host": (self._host,), "both": (self._host, self._daemon)}[what]
            until = time.monotonic() + REACH_S
            while not all(self._lives(find()) for find in who) and time.monotonic() < until:
                time.sleep(0.01)
            time.sleep(self.rng.uniform(0, 1.0))
            killed = [self._kill(find()) for find in who]
            KILLED[what if all(killed) else f"{what}, met nobody"] += 1
        else:
            KILLED[f"behind {what}" if self._die_behind(what) else f"never behind {what}"] += 1
        self._look()

    def _die_behind(self, kind: str) -> bool:
        """Puts a daemon there that dies by itself; false when the load never led to such a record."""
        until = time.monotonic() + REACH_S
        argv = [sys.executable, str(ROOT / "bench/crash_daemon.py"), kind, str(self.rng.randint(1, 3))]
        while time.monotonic() < until:
            self._kill(self._daemon())
            daemon = subprocess.Popen(
                argv, env=self.product.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
            while daemon.poll() is None and time.monotonic() < until:
                time.sleep(0.005)
            if daemon.poll() is None:
                daemon.kill()
                daemon.wait()
            elif daemon.returncode == -signal.SIGKILL:
                return True  # else a client's own start was the quicker one
        return False

    def _daemon(self) -> int:
        return int((self.product.home / "daemon.lock").read_text() or 0)

    def _host(self) -> int:
        """One that has its record; a host between its start and its record is met by what is killed at random with it."""
        records = [json.loads(_read(path) or b"{}") for path in (self.product.home / "hosts").glob("*/record.json")]
        pids = [int(record["host"][0]) for record in records if record and not record["outcome"]]
        return self.rng.choice(pids) if pids else 0

    def _lives(self, pid: int) -> bool:
        """Whether a pid that the lock or a record names is one of this home's."""
        return pid > 1 and self._mark in _read(Path(f"/proc/{pid}/environ")).split(b"\0")

    def _kill(self, pid: int) -> bool:
        if not self._lives(pid):
            return False
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        while _read(Path(f"/proc/{pid}/cmdline")):
            time.sleep(0.001)
        return True

    @property
    def _mark(self) -> bytes:
        return f"ACPMUX_HOME={self.product.home}".encode()

    # ------------------------------------------------------------ looking

    def _look(self) -> None:
        """Never two agents of one session. A child between its fork and its exec looks like one for a moment."""
        first = self._agents_by_session()
        if any(len(pids) > 1 for pids in first.values()):
            time.sleep(0.1)
            again = self._agents_by_session()
            both = {mark: pids & again.get(mark, set()) for mark, pids in first.items()}
            for mark, pids in both.items():
                if len(pids) > 1:
                    FAULTS["two agents of one session"] += 1
                    print(mark, {pid: _read(Path(f"/proc/{pid}/stat")).split()[:6] for pid in pids}, file=sys.stderr)

    def _agents_by_session(self) -> dict[bytes, set[int]]:
        found: dict[bytes, set[int]] = {}
        for pid in self.agents():
            mark = _session_of(pid)
            if mark is not None and b") Z " not in _read(Path(f"/proc/{pid}/stat")):
                found.setdefault(mark, set()).add(pid)
        return found

    def agents(self) -> list[int]:
        script = str(self.product.folder / "scripted.json").encode()
        pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
        return [pid for pid in pids if script in _read(Path(f"/proc/{pid}/cmdline")).split(b"\0")]

    def check_books(self) -> None:
        given = Counter(self._prompts_given())
        FAULTS["prompt given to an agent twice"] += sum(count > 1 for count in given.values())
        db = sqlite3.connect(self.product.home / "acpmux.db")
        db.execute("CREATE INDEX by_prompt ON records (prompt_id)")  # of the bench's own: thousands are looked up
        last: dict[str, int] = {}
        for (session_id,) in db.execute("SELECT session_id FROM sessions").fetchall():
            rows = db.execute("SELECT seq FROM records WHERE session_id = ? ORDER BY seq", (session_id,)).fetchall()
            FAULTS["gap or repeat in a log"] += [seq for (seq,) in rows] != list(range(1, len(rows) + 1))
            last[session_id] = len(rows)
        for prompt_id in self.load.asked:
            self._check_prompt(db, prompt_id)
        db.close()
        self._check_followers(last)

    def _check_prompt(self, db: sqlite3.Connection, prompt_id: str) -> None:
        rows = db.execute("SELECT kind, body FROM records WHERE prompt_id = ? ORDER BY seq", (prompt_id,)).fetchall()
        ends = [kind for kind, _ in rows if kind in ("turn_ended", "turn_failed", "cancelled")]
        outcomes = [kind for kind in ends if kind != "cancelled"] or ends
        FAULTS["accepted prompt without exactly one outcome"] += len(outcomes) != 1
        TURNS[outcomes[0] if outcomes else "none"] += 1
        told = [json.loads(body) for kind, body in rows if kind == "update"]
        texts = [
            one["update"]["content"]["text"] for one in told if one["update"]["sessionUpdate"] == "agent_message_chunk"
        ]
        if outcomes == ["turn_ended"] and texts and texts[0].startswith("at "):
            whole = len(texts) == UPDATES + 1 == len(set(texts)) and texts[-1] == f"end {prompt_id}"
            FAULTS["reply that is not whole"] += not whole

    def _check_followers(self, last: dict[str, int]) -> None:
        until = time.monotonic() + 30
        for follower in self.followers:
            while follower.seq < last[follower.session_id] and time.monotonic() < until:
                time.sleep(0.05)
            FAULTS["client: a seq missing"] += follower.seq < last[follower.session_id]
            FAULTS.update(follower.faults)
            follower.over.set()

    def _prompts_given(self) -> list[str]:
        found: list[str] = []
        for line in (self.product.folder / "scripted.record").read_text().splitlines():
            told = json.loads(line).get("got", {})
            if told.get("method") == "session/prompt":
                found.append(json.loads(told["params"]["prompt"][-1]["text"])[-1]["text"])
        return found

    def end(self) -> None:
        self.product.run("daemon", "start")
        subprocess.run(
            [COMMAND, "daemon", "shutdown", "--end-agents", "--all"],
            env=self.product.env,
            check=True,
            capture_output=True,
        )
        time.sleep(0.5)
        FAULTS["process left without an owner"] += len(carriers((self._mark,)))
        FAULTS["folder left"] += len(list((self.product.home / "hosts").iterdir()))


def _session_of(pid: int) -> bytes | None:
    items = _read(Path(f"/proc/{pid}/environ")).split(b"\0")
    return next((item for item in items if item.startswith(b"ACPMUX_SESSION_ID=")), None)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def kills(told: Any, rng: random.Random) -> list[str]:
    found = ["random"] * told.random + ["host"] * told.hosts + ["both"] * told.both
    found += [kind.value for kind in Kind] * told.records
    rng.shuffle(found)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("random", 30), ("records", 2), ("hosts", 15), ("both", 5), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    told = parser.parse_args()
    rng = random.Random(told.seed)
    plan = kills(told, rng)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="acpmux-crash-") as name:
        product = Product(Path(name))
        os.environ["ACPMUX_HOME"] = str(product.home)
        product.agent()
        product.agent("broken", command=["/no/such/agent"])
        run = Run(product, rng)
        run.begin()
        for number, what in enumerate(plan, 1):
            run.kill(what)
            if number % 10 == 0 or sys.stderr.isatty():
                print(f"{number}/{len(plan)} {time.monotonic() - began:.0f} s", file=sys.stderr)
        run.rest()
        run.check_books()
        run.end()
    print_table(time.monotonic() - began)
    return 1 if sum(FAULTS.values()) else 0


def print_table(took_s: float) -> None:
    behind = sum(count for what, count in KILLED.items() if what.startswith("behind "))
    daemons = KILLED["random"] + KILLED["both"] + behind
    hosts = KILLED["host"] + KILLED["both"]
    print(
        f"daemons killed: {daemons} ({behind} behind a record, {KILLED['both']} with a host), hosts: {hosts}, {took_s:.0f} s"
    )
    print(
        "behind: "
        + ", ".join(f"{what.split()[-1]} {n}" for what, n in sorted(KILLED.items()) if what.startswith("behind "))
    )
    print("never reached: " + (", ".join(what.split()[-1] for what in KILLED if what.startswith("never ")) or "none"))
    print("turns: " + ", ".join(f"{kind} {count}" for kind, count in sorted(TURNS.items())))
    for fault, count in sorted(FAULTS.items()):
        print(f"| {fault} | {count} |")


if __name__ == "__main__":
    sys.exit(main())
