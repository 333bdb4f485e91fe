"""The people of `soak.py`: what they do with the sessions at random, and the books they keep of it."""

import json
import random
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

from acpmux.client import Connection, connect
from acpmux.client.connection import result_of
from acpmux.errors import AcpmuxError, BudgetSpent, DaemonUnreachable
from kit.product import Product

PEOPLE = 10
PAUSE_S = 0.5  # mean, between two deeds of one person
HOT = 0.5  # of all deeds go to the first fifth of the sessions, so that some are long awake and others mostly sleep
KILLED_S = 5.0  # whoever has just started a daemon is told within so long that it was killed
ANSWER_S = 90.0  # a start waits behind others, and for a daemon that is killed in between
JOB_S = (5.0, 25.0)  # how long background work runs
JOB = ': > "$1/$0.born"; sleep "$2"; : > "$1/$0.done"'

# what a request may be told besides its answer; everything else is a fault
TOLD = {
    "_acpmux/hibernate": {"host_refused", "state"},
    "_acpmux/wake": {"state"},
    "session/prompt": {"stopped"},
}


@dataclass(slots=True)
class Job:
    """Background work. `under` the agent it may be ended by a stop, and by nothing else."""

    name: str
    under: bool
    excused: bool = False


@dataclass(slots=True)
class Prompt:
    """`says` is how many updates its whole reply has."""

    says: int
    accepted: bool = False


@dataclass(slots=True)
class Session:
    """One of the sessions there are at a time; a removed one gives its name to the next."""

    name: str
    agent: str
    pinned: bool
    session_id: str = ""
    prompts: dict[str, Prompt] = field(default_factory=dict[str, Prompt])
    jobs: list[Job] = field(default_factory=list[Job])
    removed: bool = False


class People:
    """Several people at once, each a thread. `begin` is cleared while nothing new may begin."""

    def __init__(self, product: Product, sessions: int, seed: int) -> None:
        self.product = product
        self.begin, self.over = threading.Event(), threading.Event()
        self.clients = set[Connection]()
        self.faults = Counter[str]()
        self.counts = Counter[str]()
        self.turns = 0
        self.killed_at = -KILLED_S
        self.gone: list[Session] = []
        self.sessions = [
            Session(f"s{n}", "two" if n % 2 else "one", pinned=n < sessions // 10) for n in range(sessions)
        ]
        self.job_folder = product.folder / "jobs"
        self.job_folder.mkdir()
        self._threads = [
            threading.Thread(target=self._live, args=(random.Random(seed * 1000 + n),)) for n in range(PEOPLE)
        ]
        self._numbers = iter(range(1, 1 << 30))

    def start(self) -> None:
        for session in self.sessions:
            self._new(session)
        self.begin.set()
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self.over.set()
        self.begin.set()
        for thread in self._threads:
            thread.join()

    def fault(self, what: str) -> None:
        self.faults[what] += 1
        print(f"FAULT {what}", flush=True)

    def _live(self, rng: random.Random) -> None:
        deeds = [deed for deed, _ in DEEDS]
        weights = [weight for _, weight in DEEDS]
        while not self.over.wait(rng.expovariate(1 / PAUSE_S)):
            self.begin.wait()
            among = self.sessions[: len(self.sessions) // 5] if rng.random() < HOT else self.sessions
            session = rng.choice(among)
            if not session.removed:
                try:
                    rng.choices(deeds, weights)[0](self, session, rng)
                except Exception as error:  # the thread's door: a fault of anybody's is counted, and life goes on
                    self.fault(f"{type(error).__name__}: {error}")

    # ------------------------------------------------------------ asking

    @contextmanager
    def client(self) -> Generator[Connection]:
        """A connection; whoever finds no daemon starts one."""
        with connect() as connection:
            self.clients.add(connection)
            try:
                yield connection
            finally:
                self.clients.discard(connection)

    def call(self, session: Session, method: str, /, **params: Any) -> Any:
        """One request, asked again when the daemon went meanwhile. None when it was refused in an expected way."""
        while True:
            try:
                with self.client() as client:
                    return client.request(method, {"sessionId": session.session_id, **params}, ANSWER_S)
            except DaemonUnreachable as error:
                self._unreachable(error)
            except BudgetSpent:
                return self.fault(f"no answer to {method} within {ANSWER_S:g} s")
            except AcpmuxError as error:
                return self._refused(session, method, error)

    def _unreachable(self, error: DaemonUnreachable) -> None:
        self.counts["asked again"] += 1
        started_one_that_was_killed = time.monotonic() < self.killed_at + KILLED_S
        if "did not come up" in error.message and not started_one_that_was_killed:
            self.fault(error.message)
        time.sleep(0.05)

    def _refused(self, session: Session, method: str, error: AcpmuxError) -> None:
        self.counts[f"{method}: {error.code}"] += 1
        if error.code not in TOLD.get(method, ()) and not (session.removed and error.code == "no_such_session"):
            self.fault(f"{method} told {error.code}: {error.message}")

    # ------------------------------------------------------------ deeds

    def _new(self, session: Session) -> None:
        extras = {"agent": session.agent, "name": session.name} | ({"idleAfter": "never"} if session.pinned else {})
        params: dict[str, Any] = {"cwd": str(self.product.folder), "mcpServers": [], "_meta": {"acpmux": extras}}
        while not session.session_id:
            try:
                with self.client() as client:
                    session.session_id = client.request("session/new", params, ANSWER_S)["sessionId"]
            except DaemonUnreachable as error:
                self._unreachable(error)
                with self.client() as client:  # the daemon that went may have made it
                    rows = client.request("_acpmux/sessions", {}, ANSWER_S)["sessions"]
                session.session_id = next((row["sessionId"] for row in rows if row["name"] == session.name), "")

    def replace(self, session: Session, rng: random.Random) -> None:
        session.removed = True
        self.tally(session)
        self._end(session, purge=True)
        self.counts["removed"] += 1
        fresh = Session(session.name, session.agent, session.pinned)
        self._new(fresh)
        self.gone.append(session)
        self.sessions[self.sessions.index(session)] = fresh

    def prompt(self, session: Session, rng: random.Random) -> None:
        prompt_id, blocks = self._prompt(session, *_talk(rng))
        self._accepted(session, self.call(session, "_acpmux/prompt", prompt=blocks, promptId=prompt_id), prompt_id)

    def prompt_and_wait(self, session: Session, rng: random.Random) -> None:
        self._wait(session, *self._prompt(session, *_talk(rng)))

    def question(self, session: Session, rng: random.Random) -> None:
        def answer(client: Connection, prompt_id: str) -> None:
            client.send("_acpmux/ask_respond", {"sessionId": session.session_id, "choice": "yes"})

        self._wait(session, *self._prompt(session, [{"do": "ask"}], 1), answer)

    def cancel(self, session: Session, rng: random.Random) -> None:
        def cancel(client: Connection, prompt_id: str) -> None:
            meta = {"acpmux": {"promptId": prompt_id}}
            client.notify("session/cancel", {"sessionId": session.session_id, "_meta": meta})

        self._wait(session, *self._prompt(session, [{"do": "cancelled"}], 0), cancel)

    def job(self, session: Session, rng: random.Random) -> None:
        """Work under the agent, which keeps it awake, or work that leaves its tree, which outlives every sleep."""
        job = Job(f"job-{next(self._numbers)}", under=rng.random() < 0.6)
        command = ["sh", "-c", JOB, job.name, str(self.job_folder), f"{rng.uniform(*JOB_S):.1f}"]
        steps = [{"do": "spawn" if job.under else "detach", "command": command}]
        session.jobs.append(job)
        self.counts["jobs"] += 1
        self._wait(session, *self._prompt(session, steps, 1))

    def attach(self, session: Session, rng: random.Random) -> None:
        """Follows for some seconds; every record comes once and in order, whatever else happens."""
        until = time.monotonic() + rng.uniform(0.5, 8)
        try:
            with self.client() as client:
                told = client.request("_acpmux/attach", {"sessionId": session.session_id}, ANSWER_S)
                last = told["lastSeq"]
                while time.monotonic() < until:
                    try:
                        heard = client.notification(until)
                    except BudgetSpent:
                        break
                    seq = _seq(heard.params) if heard else None
                    if seq is not None:
                        if seq != last + 1:
                            self.fault(f"a follower got record {seq} behind {last}")
                        last = seq
        except DaemonUnreachable as error:
            self._unreachable(error)
        except AcpmuxError as error:
            self._refused(session, "_acpmux/attach", error)

    def hibernate(self, session: Session, rng: random.Random) -> None:
        self.call(session, "_acpmux/hibernate")

    def wake(self, session: Session, rng: random.Random) -> None:
        self.call(session, "_acpmux/wake")

    def hibernate_and_prompt(self, session: Session, rng: random.Random) -> None:
        """A prompt that meets the sleep under way."""
        prompt_id, blocks = self._prompt(session, *_talk(rng))
        params = {"sessionId": session.session_id, "prompt": blocks, "promptId": prompt_id}
        try:
            with self.client() as client:
                client.send("_acpmux/hibernate", {"sessionId": session.session_id})
                time.sleep(rng.uniform(0, 0.1))
                client.request("_acpmux/prompt", params, ANSWER_S)
                self._accepted(session, params, prompt_id)
        except DaemonUnreachable as error:
            self._unreachable(error)
            self._wait(session, prompt_id, blocks)
        except AcpmuxError as error:
            self._refused(session, "_acpmux/prompt", error)

    def stop(self, session: Session, rng: random.Random) -> None:
        self._end(session)
        self.counts["stops"] += 1

    def look(self, session: Session, rng: random.Random) -> None:
        for method in ("_acpmux/census", "_acpmux/why", "_acpmux/info"):
            self.call(session, method)
        self.call(session, "_acpmux/events", kinds=["turn_ended"], last=20)

    # ------------------------------------------------------------ prompts

    def _prompt(self, session: Session, steps: list[dict[str, Any]], says: int) -> tuple[str, list[dict[str, str]]]:
        prompt_id = f"{session.name}-{next(self._numbers)}"
        session.prompts[prompt_id] = Prompt(says + 1)
        text = json.dumps([*steps, {"do": "say", "text": f"end {prompt_id}"}])
        return prompt_id, [{"type": "text", "text": text}]

    def _accepted(self, session: Session, told: Any, prompt_id: str) -> None:
        if told is not None:
            session.prompts[prompt_id].accepted = True
            self.turns += 1

    def _wait(
        self,
        session: Session,
        prompt_id: str,
        blocks: list[dict[str, str]],
        meanwhile: Callable[[Connection, str], None] = lambda client, prompt_id: None,
    ) -> None:
        """Waits for the turn's end under as many daemons as it takes: the same id again runs once."""
        params = {"sessionId": session.session_id, "prompt": blocks, "_meta": {"acpmux": {"promptId": prompt_id}}}
        until = time.monotonic() + ANSWER_S
        while True:
            try:
                with self.client() as client:
                    asked = client.send("session/prompt", params)
                    told = _answer(client, asked, until, lambda: meanwhile(client, prompt_id))
                    self._accepted(session, told, prompt_id)
                    return
            except DaemonUnreachable as error:
                self._unreachable(error)
            except BudgetSpent:
                return self.fault(f"prompt {prompt_id} had no outcome within {ANSWER_S:g} s")
            except AcpmuxError as error:
                if error.code == "stopped":
                    self._accepted(session, error, prompt_id)
                return self._refused(session, "session/prompt", error)

    def _end(self, session: Session, **how: bool) -> None:
        """What runs under the agent ends with it, also work that began while this was asked."""
        _excuse(session)
        self.call(session, "_acpmux/kill", **how)
        _excuse(session)

    # ------------------------------------------------------------ the books

    def tally(self, session: Session) -> None:
        """Counts what a session's log tells, and compares it with what was asked."""
        with closing(sqlite3.connect(f"file:{self.product.home}/acpmux.db?mode=ro", uri=True, timeout=10)) as db:
            rows = db.execute(
                "SELECT seq, kind, prompt_id, body FROM records WHERE session_id = ? ORDER BY seq",
                (session.session_id,),
            ).fetchall()
        if [row[0] for row in rows] != list(range(1, len(rows) + 1)):
            self.fault(f"the log of {session.name} has a gap or a repeat")
        ends, says = dict[str, list[bool]](), Counter[str]()
        for _, kind, prompt_id, body in rows:
            self.counts[kind] += 1
            if kind == "retire_refused":
                self.counts[f"sleep refused: {json.loads(body)['kind']}"] += 1
            elif kind == "update":
                says[prompt_id] += 1
            elif kind in ("turn_ended", "turn_failed"):
                told = json.loads(body)
                ends.setdefault(prompt_id, []).append(told.get("stopReason") == "end_turn")
                if kind == "turn_failed" and told["code"] != "stopped":
                    self.fault(f"turn {prompt_id} failed: {told['code']}")
        self._compare(session, ends, says)

    def _compare(self, session: Session, ends: dict[str, list[bool]], says: Counter[str]) -> None:
        for prompt_id, prompt in list(session.prompts.items()):
            if not prompt.accepted:
                self.counts["prompts not accepted"] += 1
                continue
            told = ends.get(prompt_id, [])
            self.counts["prompts accepted"] += 1
            self.counts["answered once"] += len(told) == 1
            if len(told) > 1:
                self.fault(f"prompt {prompt_id} was answered {len(told)} times")
            elif not told and session.removed:
                self.counts["removed first"] += 1
            elif not told:
                self.fault(f"prompt {prompt_id} has no outcome")
            elif told[0] and says[prompt_id] != prompt.says:
                self.fault(f"the reply to {prompt_id} has {says[prompt_id]} parts of {prompt.says}")
            else:
                self.counts["whole" if told[0] else "not whole"] += 1

    def compare_given(self) -> None:
        """What the agents were given, by their own record: no prompt twice, and each whose turn ended."""
        given = Counter[str]()
        for path in self.product.folder.glob("*.record"):
            for line in path.read_text().splitlines():
                told = json.loads(line).get("got", {})
                if told.get("method") == "session/prompt":
                    given[json.loads(told["params"]["prompt"][-1]["text"])[-1]["text"].removeprefix("end ")] += 1
        for prompt_id, times in given.items():
            if times > 1:
                self.fault(f"prompt {prompt_id} was given to an agent {times} times")
        self.counts["given"] = len(given)


DEEDS: list[tuple[Callable[[People, Session, random.Random], None], float]] = [
    (People.prompt, 30),
    (People.prompt_and_wait, 30),
    (People.attach, 6),
    (People.hibernate, 6),
    (People.hibernate_and_prompt, 4),
    (People.wake, 4),
    (People.look, 6),
    (People.question, 3),
    (People.cancel, 3),
    (People.job, 3),
    (People.stop, 2),
    (People.replace, 1),
]


def _excuse(session: Session) -> None:
    for job in session.jobs:
        job.excused = job.excused or job.under


def _talk(rng: random.Random) -> tuple[list[dict[str, Any]], int]:
    """Steps of a turn, and how many updates they say."""
    match rng.randrange(4):
        case 0:
            count = rng.randrange(5, 60)
            return [{"do": "ticks", "count": count, "per_second": 200}], count
        case 1:
            return [{"do": "sleep", "seconds": rng.uniform(0, 1.5)}], 0
        case 2:
            return [{"do": "huge", "size": rng.randrange(1, 20_000)}], 1
        case _:
            return [], 0


def _answer(client: Connection, asked: int, until: float, meanwhile: Callable[[], None]) -> Any:
    while True:
        meanwhile()
        pause = min(until, time.monotonic() + 0.5)
        try:
            while (told := client.receive(pause)).get("id") != asked:
                pass
            return result_of(told)
        except BudgetSpent:
            if pause == until:
                raise


def _seq(params: dict[str, Any]) -> int | None:
    own = params.get("_meta", {}).get("acpmux", {}) if "update" in params else params
    return own.get("seq")
