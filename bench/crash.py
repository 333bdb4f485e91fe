"""Daemons and hosts killed at random moments under load: `python bench/crash.py [--daemons 60] [--hosts 15] [--seed 1]`, also `make crash`.

Sessions with an agent each are prompted all along. After every kill the next daemon is started, and at the end of each session's prompts
the books are compared: no seq missing or twice in the log, every prompt answered once, no prompt given to an agent twice, every reply whole
where its turn ended normally, never two agents of one session alive, and no process left when all is stopped. Exits 1 for any fault.
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
sys.path[:0] = [str(ROOT / "tests")]

from acpmux.census.table import carriers  # noqa: E402
from kit.product import COMMAND, Product  # noqa: E402

SESSIONS = 4
UPDATES = 300  # of a turn, some half a second's worth
FAULTS: Counter[str] = Counter()


class Run:
    def __init__(self, product: Product, rng: random.Random) -> None:
        self.product, self.rng = product, rng
        self.asked: dict[str, list[str]] = {f"s{n}": [] for n in range(SESSIONS)}

    def keep_busy(self) -> None:
        """Each session gets a prompt when it has none; a daemon that dies meanwhile may leave it unaccepted."""
        for row in self.rows():
            name = row["name"]
            if row["queued"] and row["status"] == "hibernated":  # a daemon start wakes nothing, so somebody must
                self.product.run("wake", name)
            if not row["queued"] and row["status"] in ("ready", "hibernated"):
                prompt_id = f"{name}-{len(self.asked[name])}"
                text = json.dumps(
                    [{"do": "ticks", "count": UPDATES, "per_second": 600}, {"do": "say", "text": f"end {prompt_id}"}]
                )
                done = self.product.run("send", name, text, "--no-wait", "--prompt-id", prompt_id)
                if done.returncode == 0:
                    self.asked[name].append(prompt_id)

    def rows(self) -> list[dict[str, Any]]:
        done = self.product.run("ls", "--json")
        return json.loads(done.stdout) if done.returncode == 0 else []

    def kill(self, what: str) -> None:
        if what == "daemon":
            pid = int((self.product.home / "daemon.lock").read_text() or 0)
        else:
            awake = [row["hostPid"] for row in self.rows() if row["hostPid"]]
            pid = self.rng.choice(awake) if awake else 0
        if pid:
            try:
                os.kill(pid, signal.SIGKILL)  # the daemon of this home, or a host it told of a moment ago
            except ProcessLookupError:
                pass

    def check_agents(self) -> None:
        """Never two agents of one session."""
        alive = Counter(mark for pid in _agents(self.product) for mark in [_session_of(pid)] if mark)
        FAULTS["two agents of one session"] += sum(count > 1 for count in alive.values())

    def check_books(self) -> None:
        given = Counter(_prompts_given(self.product))
        FAULTS["prompt given twice"] += sum(count > 1 for count in given.values())
        db = sqlite3.connect(self.product.home / "acpmux.db")
        for (session_id,) in db.execute("SELECT session_id FROM sessions").fetchall():
            seqs = [
                seq for (seq,) in db.execute("SELECT seq FROM records WHERE session_id = ? ORDER BY seq", (session_id,))
            ]
            FAULTS["gap in a log"] += seqs != list(range(1, len(seqs) + 1))
        for prompt_ids in self.asked.values():
            for prompt_id in prompt_ids:
                ends = db.execute(
                    "SELECT kind FROM records WHERE prompt_id = ? AND kind IN ('turn_ended', 'turn_failed')",
                    (prompt_id,),
                ).fetchall()
                FAULTS["accepted prompt without one outcome"] += len(ends) != 1
                if ends == [("turn_ended",)]:
                    bodies = db.execute(
                        "SELECT body FROM records WHERE prompt_id = ? AND kind = 'update' ORDER BY seq", (prompt_id,)
                    ).fetchall()
                    texts = [json.loads(body)["update"]["content"]["text"] for (body,) in bodies]
                    FAULTS["reply that is not whole"] += (
                        len(texts) != UPDATES + 1 or texts[-1] != f"end {prompt_id}" or len(set(texts)) != len(texts)
                    )
                COUNTS[ends[0][0] if ends else "none"] += 1
        db.close()


COUNTS: Counter[str] = Counter()


def _agents(product: Product) -> list[int]:
    return [
        int(p.name) for p in Path("/proc").iterdir()
        if p.name.isdigit() and str(product.folder / "scripted.json").encode() in _read(p / "cmdline").split(b"\0")
    ]  # fmt: skip


def _session_of(pid: int) -> bytes | None:
    return next(
        (item for item in _read(Path(f"/proc/{pid}/environ")).split(b"\0") if item.startswith(b"ACPMUX_SESSION_ID=")),
        None,
    )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _prompts_given(product: Product) -> list[str]:
    found: list[str] = []
    for line in (product.folder / "scripted.record").read_text().splitlines():
        told = json.loads(line).get("got", {})
        if told.get("method") == "session/prompt":
            found.append(json.loads(told["params"]["prompt"][0]["text"])[1]["text"])
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--daemons", type=int, default=60)
    parser.add_argument("--hosts", type=int, default=15)
    parser.add_argument("--seed", type=int, default=1)
    told = parser.parse_args()
    rng = random.Random(told.seed)
    kills = ["daemon"] * told.daemons + ["host"] * told.hosts
    rng.shuffle(kills)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="acpmux-crash-") as name:
        product = Product(Path(name))
        product.agent()
        run = Run(product, rng)
        for session in run.asked:
            product.ok("new", "-a", "scripted", "-n", session)
        session_ids = [row["sessionId"] for row in run.rows()]
        for number, what in enumerate(kills):
            run.keep_busy()
            time.sleep(rng.uniform(0, 0.6))
            run.kill(what)
            run.check_agents()
            if sys.stderr.isatty():
                print(f"\r{number + 1}/{len(kills)}", end="", file=sys.stderr)
        until = time.monotonic() + 60
        while any(row["queued"] or row["status"] not in ("ready", "hibernated") for row in run.rows()):
            assert time.monotonic() < until, run.rows()
            for row in run.rows():
                if row["queued"] and row["status"] == "hibernated":
                    product.run("wake", row["name"])
            time.sleep(0.2)
        run.check_books()
        subprocess.run(
            [COMMAND, "daemon", "shutdown", "--end-agents", "--all"], env=product.env, check=True, capture_output=True
        )
        time.sleep(0.5)
        FAULTS["process left"] += len(_agents(product)) + sum(
            len(carriers((f"ACPMUX_SESSION_ID={one}".encode(),))) for one in session_ids
        )
    print(f"daemons killed: {told.daemons}, hosts killed: {told.hosts}, {time.monotonic() - began:.0f} s")
    print(f"turns ended normally: {COUNTS['turn_ended']}, with an unknown or failed outcome: {COUNTS['turn_failed']}")
    for fault, count in sorted(FAULTS.items()):
        print(f"| {fault} | {count} |")
    return 1 if sum(FAULTS.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
