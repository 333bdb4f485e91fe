"""Sleeping and waking for as long as you like: `python bench/soak.py [--minutes 10] [--sessions 40] [--seed 1]`, also `make soak`.

Scripted agents with MCP servers and an idle period of seconds are used at random by several people at once (`soak_use.py`), while
daemons are shut down or killed with -9; whoever comes starts the next one. Every few seconds nothing new is begun, and when all is
quiet every process and descriptor is counted (`soak_look.py`) and held against the sessions. At the end the books are compared,
everything must fall asleep, and the drift of each daemon and host is told. Exits 1 when a law is broken:

- a prompt has one outcome, is given to an agent once, and its reply is whole; a follower gets each record once and in order;
- one host, one agent and its MCP servers for each awake session, one folder for each host, and nothing else;
- work under an agent runs until its own end or a stop, work that left the tree until its own end;
- a session that nothing holds sleeps within SLEEP_S of its idle period;
- a daemon's descriptors, less those of its awake sessions, clients and database connections, are equal at every quiet moment of
  every daemon; so are a host's, less those of the work it watches; a daemon has no more threads than its pools may have;
- from the first third of its life to the last, a daemon's private memory grows by less than DAEMON_KB for 1,000 prompts, not counting
  its first WARM_PROMPTS, and a host's by less than HOST_KB; the last daemon takes less than LATER_KB more than the first;
- the database holds nothing of removed sessions, and the daemon's log no error.
"""

import argparse
import os
import random
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "bench")]

from soak_look import Look, Usage, look  # noqa: E402
from soak_use import ANSWER_S, People  # noqa: E402

from kit.product import COMMAND, Product  # noqa: E402

IDLE_S = 4
SLEEP_S = 30.0
SAMPLE_S = 6.0
QUIET_S = 10.0  # a sleep or start under way is over by then, and what it leaves behind is no passing state
LIFE_S = 280.0  # then four daemons are ended shortly one after another
DAEMON_KB, HOST_KB, LATER_KB = 2000, 200, 4000  # a heap that settles took up to 1,250 for 1,000; 2 KB a prompt, 3,550
WARM_PROMPTS = 500  # threads, code and caches that a daemon takes once are there by then
READERS = 3
DB_DESCRIPTORS = 3 * (1 + READERS)
DAEMON_THREADS = 2 + READERS + min(32, (os.cpu_count() or 1) + 4)  # main, writer, readers, asyncio's pool

Row = dict[str, Any]


class Sample(NamedTuple):
    at: float
    prompts: int
    usage: Usage


@dataclass(slots=True)
class Life:
    """A daemon or host at its quiet moments."""

    samples: list[Sample] = field(default_factory=list[Sample])

    def thirds(self, warm: int = 0) -> tuple[list[Sample], list[Sample]] | None:
        """The first and the last third of its samples behind the first `warm` prompts; None for too short a life."""
        settled = [sample for sample in self.samples if sample.prompts >= self.samples[0].prompts + warm]
        size = len(settled) // 3
        return None if size < 3 else (settled[:size], settled[-size:])


def _middle(samples: list[Sample], what: str) -> float:
    return statistics.median(getattr(sample, what) for sample in samples)


def _middle_dirty(samples: list[Sample]) -> float:
    return statistics.median(sample.usage.dirty_kb for sample in samples)


class Watch:
    """Counts at quiet moments and holds the counts against the sessions."""

    def __init__(self, people: People, home: Path) -> None:
        self.people, self.home = people, home
        self.began = time.monotonic()
        self.restarted = self.began
        self.daemons: dict[int, Life] = {}
        self.hosts: dict[int, Life] = {}
        self.daemon_rest: int | None = None
        self.host_rest: int | None = None
        self.looks = 0
        self.slowest_s = 0.0

    def sample(self) -> None:
        """Nothing new begins until all laws hold in one quiet moment, or are broken for QUIET_S."""
        self.people.begin.clear()
        began = time.monotonic()
        until = began + QUIET_S
        rows, found, broken = list[Row](), Look(), ["no quiet moment"]
        while broken and time.monotonic() < until:
            with self.people.client() as client:
                clients, born = len(self.people.clients), set(self._born())
                rows = client.request("_acpmux/sessions", {}, ANSWER_S)["sessions"]
                found = look(self.home)
                after = client.request("_acpmux/sessions", {}, ANSWER_S)["sessions"]
                if _settled(rows) and _key(rows) == _key(after) and clients == len(self.people.clients):
                    broken = self._broken(rows, found, clients) + self._jobs_broken(born, found)
            if broken:
                time.sleep(0.2)
        self.slowest_s = max(self.slowest_s, time.monotonic() - began)
        self.people.begin.set()
        for what in broken:
            self.people.fault(what)
        if not broken:
            self._keep(rows, found)

    def _born(self) -> list[str]:
        return [path.stem for path in self.people.job_folder.glob("*.born")]

    def _keep(self, rows: list[Row], found: Look) -> None:
        self.looks += 1
        at, awake = time.monotonic() - self.began, _awake(rows)
        ((pid, usage),) = found.daemons.items()
        self.daemons.setdefault(pid, Life()).samples.append(Sample(at, self.people.turns, usage))
        prompts = {session.session_id: len(session.prompts) for session in self.people.sessions}
        for session_id, row in awake.items():
            sample = Sample(at, prompts.get(session_id, 0), found.hosts[row["hostPid"]])
            self.hosts.setdefault(row["hostPid"], Life()).samples.append(sample)
        dirty = [usage.dirty_kb for usage in found.hosts.values()] or [0]
        print(
            f"{at:5.0f} s  daemon {len(self.daemons)}: {usage.dirty_kb / 1024:.1f} MB, {sum(usage.fds.values())} descriptors, "
            f"{usage.threads} threads;  awake {len(awake)}, hosts {statistics.median(dirty) / 1024:.1f} MB (most "
            f"{max(dirty) / 1024:.1f});  prompts {self.people.turns}, jobs {len(found.jobs)}, "
            f"database {self.db_bytes() / 1e6:.1f} MB",
            flush=True,
        )

    def db_bytes(self) -> int:
        return sum(path.stat().st_size for path in self.home.glob("acpmux.db*"))

    # ------------------------------------------------------------ laws

    def _broken(self, rows: list[Row], found: Look, clients: int) -> list[str]:
        awake = _awake(rows)
        pids = {row["hostPid"] for row in awake.values()}
        servers = {session_id: 2 if row["agent"] == "two" else 1 for session_id, row in awake.items()}
        agents = dict.fromkeys(awake, 1)
        folders = sum(path.is_dir() for path in (self.home / "hosts").iterdir())
        told: list[tuple[str, object, object]] = [
            ("daemons", len(found.daemons), 1),
            ("hosts without a session", len(found.hosts.keys() - pids), 0),
            ("sessions without a host", len(pids - found.hosts.keys()), 0),
            ("sessions with more or fewer agents than one", agents.items() ^ found.agents.items(), set()),
            ("sessions with more or fewer MCP servers than due", servers.items() ^ found.servers.items(), set()),
            ("folders of hosts", folders, len(awake)),
            ("sessions that nothing holds and that do not sleep", self._restless(rows, found), []),
        ]
        broken = [f"{what}: {counted}, not {due}" for what, counted, due in told if counted != due]
        return broken or self._usage_broken(rows, found, clients)

    def _restless(self, rows: list[Row], found: Look) -> list[str]:
        now = time.time()
        held = {s.session_id for s in self.people.sessions for job in s.jobs if job.under and self._held(job.name, now)}
        return [
            row["name"] for row in rows
            if row["status"] == "ready" and row["idleAfter"] != "never" and not row["clients"]
            and row["sessionId"] not in held and _age_s(row, now) > IDLE_S + SLEEP_S
            and time.monotonic() > self.restarted + IDLE_S + SLEEP_S
        ]  # fmt: skip

    def _held(self, job: str, now: float) -> bool:
        """It runs, or a whole period behind its end is not over."""
        born, done = (self.people.job_folder / f"{job}.{word}" for word in ("born", "done"))
        return born.exists() and (not done.exists() or now < done.stat().st_mtime + IDLE_S + SLEEP_S)

    def _usage_broken(self, rows: list[Row], found: Look, clients: int) -> list[str]:
        ((_, daemon),) = found.daemons.items()
        hosts = found.hosts.values()
        # of each awake session a link and the host's pidfd, and of one that this daemon started the host's pipe too
        due = 2 * len(hosts) + sum(host.born >= daemon.born for host in hosts) + clients
        rest = daemon.fds.total() - daemon.fds["db"] - due
        self.daemon_rest = rest if self.daemon_rest is None else self.daemon_rest
        told = [
            ("a daemon's other descriptors", rest, rest == self.daemon_rest),
            ("a daemon's descriptors of the database", daemon.fds["db"], daemon.fds["db"] <= DB_DESCRIPTORS),
            ("a daemon's threads", daemon.threads, daemon.threads <= DAEMON_THREADS),
        ]
        watched = {s.session_id: 2 * sum(job.name in found.jobs for job in s.jobs) for s in self.people.sessions}
        for session_id, row in _awake(rows).items():
            host = found.hosts[row["hostPid"]]
            rest = host.fds.total() - host.fds["pidfd"]
            self.host_rest = rest if self.host_rest is None else self.host_rest
            told.append(("a host's other descriptors", rest, rest == self.host_rest))
            pidfds = host.fds["pidfd"]
            told.append(("a host's descriptors of processes", pidfds, pidfds <= 1 + watched.get(session_id, 0)))
        return [f"{what}: {counted}" for what, counted, holds in told if not holds]

    def _jobs_broken(self, born: set[str], found: Look) -> list[str]:
        jobs = [job for s in (*self.people.sessions, *self.people.gone) for job in s.jobs if not job.excused]
        return [
            f"{job.name} died before its end (under its agent: {job.under})" for job in jobs
            if job.name in born and job.name not in found.jobs and not (self.people.job_folder / f"{job.name}.done").exists()
        ]  # fmt: skip

    # ------------------------------------------------------------ the end

    def until_all_sleep(self) -> None:
        """Prompts that a daemon's end left waiting are woken, jobs end by themselves, and then everything sleeps."""
        until = time.monotonic() + 120
        while True:
            with self.people.client() as client:
                rows = client.request("_acpmux/sessions", {}, ANSWER_S)["sessions"]
                left = [
                    r for r in rows if r["queued"] or not (r["status"] == "hibernated" or r["idleAfter"] == "never")
                ]
                for row in left:
                    if row["queued"] and row["status"] == "hibernated":
                        client.send("_acpmux/wake", {"sessionId": row["sessionId"]})
                if not left and not look(self.home).jobs:
                    return
                time.sleep(0.5)
            if time.monotonic() > until:
                return self.people.fault(
                    f"not asleep at the end: {[(r['name'], r['status'], r['queued']) for r in left]}"
                )

    def drift(self) -> list[str]:
        """The table of the daemons that lived long enough, and their laws."""
        rows: list[str] = []
        levels: list[float] = []
        for number, life in enumerate(self.daemons.values(), 1):
            if (thirds := life.thirds(WARM_PROMPTS)) is None:
                continue
            before, after = (_middle_dirty(third) for third in thirds)
            prompts = _middle(thirds[1], "prompts") - _middle(thirds[0], "prompts")
            drift = (after - before) * 1000 / prompts
            levels.append(before)
            rows.append(
                f"| {number} | {life.samples[-1].at - life.samples[0].at:.0f} s | "
                f"{life.samples[-1].prompts - life.samples[0].prompts:,} | {before / 1024:.1f} MB | {after / 1024:.1f} MB | "
                f"{drift:+.0f} KB | {max(s.usage.rss_kb for s in life.samples) / 1024:.0f} MB | "
                f"{max(s.usage.threads for s in life.samples)} |"
            )
            if drift > DAEMON_KB:
                self.people.fault(f"daemon {number} grew by {drift:.0f} KB for 1,000 prompts")
        if levels and levels[-1] > levels[0] + LATER_KB:
            self.people.fault(f"the last daemon took {levels[-1] - levels[0]:.0f} KB more than the first")
        return rows

    def host_growth(self) -> list[float]:
        """By how many KB each host grew that lived long enough, the least first."""
        lives = [thirds for life in self.hosts.values() if (thirds := life.thirds()) is not None]
        grown = sorted(_middle_dirty(last) - _middle_dirty(first) for first, last in lives)
        for grew in grown:
            if grew > HOST_KB:
                self.people.fault(f"a host grew by {grew:.0f} KB")
        return grown


def _awake(rows: list[Row]) -> dict[str, Row]:
    return {row["sessionId"]: row for row in rows if row["pid"] is not None}


def _settled(rows: list[Row]) -> bool:
    return all(row["status"] in ("ready", "running", "waiting", "hibernated") for row in rows)


def _key(rows: list[Row]) -> list[tuple[Any, ...]]:
    return [(row["sessionId"], row["status"], row["pid"], row["hostPid"], row["clients"]) for row in rows]


def _age_s(row: Row, now: float) -> float:
    return now - datetime.fromisoformat(row["lastActiveAt"]).timestamp()


def end_daemon(people: People, home: Path, how: str) -> None:
    if how == "kill":
        people.killed_at = time.monotonic()
        try:
            os.kill(int((home / "daemon.lock").read_text() or 0), signal.SIGKILL)  # the daemon of this home
        except ProcessLookupError:
            pass
    else:
        with people.client() as client:
            client.request("_acpmux/shutdown", {}, ANSWER_S)
    people.counts[how] += 1


def run(people: People, watch: Watch, minutes: float, rng: random.Random) -> None:
    over = time.monotonic() + minutes * 60
    burst = time.monotonic() + LIFE_S
    while time.monotonic() < over:
        if time.monotonic() > burst:
            burst += LIFE_S
            for how in rng.sample(["kill", "shutdown"] * 2, 4):
                end_daemon(people, watch.home, how)
                time.sleep(rng.uniform(0.5, 4))
            watch.restarted = time.monotonic()
        watch.sample()
        time.sleep(SAMPLE_S)


def settings() -> str:
    """One MCP server for every agent, and another one for the agent called "two"."""
    server = f'command = "{sys.executable}"\nargs = ["-m", "acpmux.agents.demo_mcp"]\n'
    return f'attached = "20s"\n[mcp_servers.clock]\n{server}[agents.two.mcp_servers.notes]\n{server}'


def report(people: People, watch: Watch) -> None:
    """Compares the books and prints all tables. The daemon has ended."""
    for session in people.sessions:
        people.tally(session)
    people.compare_given()
    lives, hosts = watch.drift(), watch.host_growth()
    records, body_bytes = check_store(people, watch.home)
    check_left(people, watch.home)
    count = people.counts
    refused = {what.partition(": ")[2]: number for what, number in count.items() if what.startswith("sleep refused")}
    asked = {what.partition(": ")[2]: number for what, number in count.items() if what.startswith("_acpmux/hibernate")}
    rows = [
        ("prompts accepted", count["prompts accepted"]),
        (
            "  answered exactly once; removed with their session first",
            _numbers(count, "answered once", "removed first"),
        ),
        ("  given to an agent; whole replies; stopped or taken back", _numbers(count, "given", "whole", "not whole")),
        ("sleeps; wakes; stops; sessions removed", _numbers(count, "hibernated", "woke", "stops", "removed")),
        ("sleeps refused by the host", _by_kind(refused)),
        ("sleeps on request that were refused", _by_kind(asked)),
        ("background jobs", count["jobs"]),
        ("daemons killed; shut down; requests asked again for it", _numbers(count, "kill", "shutdown", "asked again")),
        ("quiet moments at which everything was counted", watch.looks),
        ("  the longest until all laws held in one", f"{watch.slowest_s:.1f} s"),
        ("descriptors of a daemon, of a host, that no session accounts for", f"{watch.daemon_rest}; {watch.host_rest}"),
        ("hosts; of them long enough to tell their growth", f"{len(watch.hosts):,}; {len(hosts)}"),
        (
            "  their growth, median and most",
            f"{statistics.median(hosts):+.0f} KB; {hosts[-1]:+.0f} KB" if hosts else "",
        ),
        (
            "records; their bodies; the database",
            f"{records:,}; {body_bytes / 1e6:.1f} MB; {watch.db_bytes() / 1e6:.1f} MB",
        ),
        ("**laws broken**", f"**{people.faults.total()}**"),
    ]
    print("\n| | |\n| --- | --- |")
    for what, figure in rows:
        print(f"| {what} | {f'{figure:,}' if isinstance(figure, int) else figure} |")
    print("\n| daemon | lived | prompts | first third | last third | for 1,000 prompts | most resident | threads |")
    print("| --- " * 8 + "|")
    print("\n".join(lives))
    for fault, times in sorted(people.faults.items()):
        print(f"FAULT {fault} ({times} times)")


def _numbers(count: Counter[str], *names: str) -> str:
    return "; ".join(f"{count[name]:,}" for name in names)


def _by_kind(kinds: dict[str, int]) -> str:
    return "; ".join(f"{kind} {number}" for kind, number in sorted(kinds.items())) or "none"


def check_left(people: People, home: Path) -> None:
    """Nothing is left of all that ran, and the daemons' log tells no error."""
    time.sleep(1)  # the daemon has let its lock go and ends
    left = look(home)
    folders = [path.name for path in (home / "hosts").iterdir()]
    for what in (left.daemons, left.hosts, left.agents, left.servers, left.jobs, folders):
        if what:
            people.fault(f"left behind when all was ended: {what}")
    for path in (home / "logs").glob("daemon.log*"):
        for line in path.read_text().splitlines():
            if " ERROR " in line:
                people.fault(f"the daemon's log: {line[:300]}")


def check_store(people: People, home: Path) -> tuple[int, int]:
    """Records of sessions that are no more; returns how many records there are and their bodies' bytes."""
    with closing(sqlite3.connect(home / "acpmux.db", timeout=10)) as db:
        (stray,) = db.execute(
            "SELECT count(*) FROM records WHERE session_id NOT IN (SELECT session_id FROM sessions)"
        ).fetchone()
        (sessions,) = db.execute("SELECT count(*) FROM sessions").fetchone()
        if stray or sessions != len(people.sessions):
            people.fault(f"the database holds {sessions} sessions and {stray} records of removed ones")
        return db.execute("SELECT count(*), sum(length(body)) FROM records").fetchone()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--sessions", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    told = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # told to end, it ends all that it started too
    with tempfile.TemporaryDirectory(prefix="acpmux-soak-") as name:
        product = Product(Path(name), f"{IDLE_S}s", settings())
        os.environ["ACPMUX_HOME"] = str(product.home)
        os.environ.pop("ACPMUX_SOCKET", None)
        for agent in ("one", "two"):
            product.agent(agent)
        people = People(product, told.sessions, told.seed)
        try:
            people.start()
            watch = Watch(people, product.home)
            run(people, watch, told.minutes, random.Random(told.seed))
            people.end()
            watch.until_all_sleep()
            watch.sample()
        finally:
            people.end()
            subprocess.run([COMMAND, "daemon", "shutdown", "--end-agents", "--all"], env=product.env, check=True)
        report(people, watch)
    return 1 if people.faults else 0


if __name__ == "__main__":
    sys.exit(main())
