"""How each effect of a session is done in the world; what comes of it returns as an event."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from acpmux.census.verdict import command_text
from acpmux.errors import AcpmuxError, HostLost, Internal, StartTimeout, StoreError
from acpmux.hub.deadlines import Deadlines
from acpmux.hub.harness import CENSUS_BUDGET_S, Harness
from acpmux.hub.headers import ended_of
from acpmux.hub.pool import Pool
from acpmux.hub.replay import given_answers
from acpmux.hub.transcript import with_transcript
from acpmux.hub.wake import WakePlan, bring_up
from acpmux.model.ids import HostId, HostSeq
from acpmux.model.record import Kind
from acpmux.model.session import Want
from acpmux.ports import Clock, EventLog, HostLauncher, Spawn
from acpmux.rules import messages as m
from acpmux.untyped import parse_json

if TYPE_CHECKING:
    from acpmux.hub.actor import Actor

WAKE_RETRY_S = 1.0  # a lock or a writer of the last incarnation is gone after a second, by what agents were seen to do
UNSTABLE_TRIES = 5  # a busy moment of the machine is no reason to tell a person no
UNSTABLE_S = 0.2
WAKES_KNOWN = 1000  # what outlives a thousand sleeps of its session is found by hand
REFUSAL_LOG_S = 600.0  # one line a session in ten minutes says enough

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Engine:
    """What all sessions share."""

    clock: Clock
    log: EventLog
    launcher: HostLauncher
    pool: Pool
    spawn: Spawn
    deadlines: Deadlines
    wakes: asyncio.Semaphore
    plan: Callable[["Actor"], WakePlan]
    purged: Callable[["Actor"], None]


class Effects:
    """The hands of one actor, and its harness while there is one."""

    def __init__(self, actor: "Actor", engine: Engine) -> None:
        self._actor = actor
        self._engine = engine
        self._acked = HostSeq(0)
        self._wake: asyncio.Task[Any] | None = None
        self._pooled_hosts: list[str] | None = None  # read from the log once, when first asked for
        self._refusal_logged_at: float | None = None
        self.incarnation = 0
        self.harness: Harness | None = None

    def stored(self, host_seq: int) -> None:
        """Lets the host drop what is in the log now."""
        if self.harness is not None and self.harness.linked_to_host and host_seq > self._acked:
            self._acked = HostSeq(host_seq)
            self.harness.link.ack(self._acked)

    async def census(self) -> dict[str, Any]:
        """The header of the host's census, empty while no harness runs, with all that left the session's tree."""
        header: dict[str, Any] = {"whole": True}
        above = set[int]()
        if self.harness is not None and self._actor.session.live.pid is not None:
            link = self.harness.link
            try:
                header, above = dict(await link.request("census", CENSUS_BUDGET_S)), {link.host_pid}
            except HostLost:
                pass  # it fell asleep or ended while it was asked
        listed: list[Any] = [*header.get("processes", ())]
        pids = {row["pid"] for row in listed} | above
        for row in await self._engine.launcher.left_running(await self.marks()):
            if row["pid"] not in pids and row["ppid"] not in pids:  # else it was born under it a moment ago
                listed.append(row)
        return header | {"processes": listed}

    def perform(self, effect: m.Effect) -> None:
        """Does one effect, in the order decided; what takes time goes on in a task of its own."""
        session_id, engine = self._actor.session_id, self._engine
        match effect:
            case m.Wake():
                self.incarnation += 1
                self._wake = self._start("wake", self._wake_up(self.incarnation))
            case m.Retire(after, grace_s):
                self._start("retire", self._retire(after, grace_s))
            case m.EndHost(all_):
                self._start("end", self._end(all_))
            case m.LetHostGo():
                if self.harness is not None:
                    self._start("bye", self.harness.link.close())
                    self.harness = None
            case m.Arm(at, epoch):
                engine.deadlines.arm(session_id, at, epoch)
            case m.Disarm():
                engine.deadlines.disarm(session_id)
            case m.LogRefusal(reason, blockers):
                self._log_refusal(reason, blockers)
            case m.Purge(answers):
                self._start("purge", self._purge(answers))
            case m.SendPrompt(prompt, True):
                self._start("rehydrate", self._send_with_transcript(prompt.prompt_id, prompt.blocks))
            case _:
                self._say(effect)

    def _say(self, effect: m.Effect) -> None:
        """One line to the harness. When it is gone, its HarnessExited is in the mailbox already and tells it all."""
        harness = self.harness
        if harness is None:
            return
        try:
            match effect:
                case m.SendPrompt(prompt):
                    harness.send_prompt(prompt.prompt_id, prompt.blocks, self._actor.started_at(prompt.prompt_id))
                case m.SendCancel():
                    harness.send_cancel()
                case m.SendRequest(token, method, params):
                    harness.send_request(token, method, params)
                case m.SendNotification(method, params):
                    harness.send_notification(method, params)
                case m.AnswerHarness():
                    harness.answer(effect)
                case m.RetireCancel():
                    harness.link.retire_cancel()
                case _:
                    raise AssertionError(f"no hand for {type(effect).__name__}")
        except AcpmuxError as error:
            log.info(
                "not sent session=%s effect=%s error=%s",
                self._actor.session_id,
                type(effect).__name__,
                error.code,
            )

    def _start(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[Any]:
        return self._engine.spawn(f"{name}:{self._actor.session_id}", work)

    def _tell(self, event: m.Event, incarnation: int) -> None:
        self._actor.tell(event, incarnation=incarnation)

    # ------------------------------------------------------------ up

    async def _wake_up(self, incarnation: int) -> None:
        """Two tries; both failed, the session sleeps again with the reason.

        An error of ours ends here too, as a failed wake.
        """
        try:
            async with self._engine.wakes:
                await self._try(incarnation)
        except AcpmuxError as error:
            log.warning("wake failed session=%s code=%s", self._actor.session_id, error.code)
            self._tell(m.WakeFailed(error.code, error.message), incarnation)
        except Exception as error:  # the door of an effect: a fault of ours must not leave a session WAKING for ever
            log.exception("wake broke session=%s", self._actor.session_id)
            self._tell(m.WakeFailed(Internal.code, f"acpmux failed to start the agent: {error!r}"), incarnation)

    async def _try(self, incarnation: int) -> None:
        try:
            await self._bring_up(incarnation)
        except AcpmuxError as error:
            if error.detail == "spawn" or isinstance(error, StartTimeout):
                raise  # a program that is missing stays missing, and one that hung for a minute would hang for another
            log.info("wake tried again session=%s code=%s", self._actor.session_id, error.code)
            await self._engine.clock.sleep(WAKE_RETRY_S)
            await self._bring_up(incarnation)

    async def _bring_up(self, incarnation: int) -> None:
        plan = self._engine.plan(self._actor)
        harness = await self._engine.pool.take(plan.spec) or Harness()
        harness.belongs_to(lambda event: self._tell(event, incarnation))
        self.harness, self._acked = harness, HostSeq(0)
        try:
            await bring_up(harness, plan, self._engine.launcher, self._engine.clock)
        except BaseException:
            self.harness = None
            raise
        if harness.pooled and self._pooled_hosts is not None:
            self._pooled_hosts.append(harness.host_id)
        log.info("woke session=%s pid=%s", self._actor.session_id, harness.link.leader.pid)

    async def _send_with_transcript(self, prompt_id: Any, blocks: bytes) -> None:
        told = await with_transcript(self._engine.log, self._actor.session_id, prompt_id, blocks)
        if self.harness is not None:
            self.harness.send_prompt(prompt_id, told, self._actor.started_at(prompt_id))

    async def adopt(self, host_id: HostId, host_seq: HostSeq) -> bool:
        """Takes over the harness of an earlier daemon. False when there is none left, and nothing of it runs."""
        self.incarnation += 1
        incarnation, checkpoint = self.incarnation, self._actor.session.checkpoint
        turn_seq = None
        if checkpoint.turn is not None:
            turn_seq = await self._actor.find_started(checkpoint.turn.prompt.prompt_id)
        harness = Harness()
        harness.belongs_to(lambda event: self._tell(event, incarnation))
        harness.resumed(checkpoint, host_seq, turn_seq)
        link = await self._engine.launcher.adopt(host_id, host_seq, harness)
        if link is None:
            return False
        self.harness, self._acked = harness, host_seq
        harness.adopted(link)
        for answer in await given_answers(self._engine.log, self._actor.session_id):
            harness.answer(answer)
        log.info("adopted session=%s pid=%s", self._actor.session_id, link.leader.pid)
        return True

    # ------------------------------------------------------------ down

    async def _retire(self, after: HostSeq, grace_s: float) -> None:
        incarnation, harness = self.incarnation, self.harness
        if harness is None:
            self._tell(m.HarnessExited(None, None, "", lost=True), incarnation)
            return
        event = await harness.retire(after, grace_s)
        for _ in range(UNSTABLE_TRIES):
            if not isinstance(event, m.RetireRefused) or event.kind != "unknown" or not event.retry:
                break
            await self._engine.clock.sleep(UNSTABLE_S)
            if self._actor.session.live.want is not Want.NOTHING:
                break  # used meanwhile: its RetireCancel met no retirement that it could cancel
            event = await harness.retire(after, grace_s)
        if event is None:
            return
        if isinstance(event, m.Retired):
            self.harness = None
            log.info(
                "hibernated session=%s ended=%d took_ms=%d",
                self._actor.session_id,
                len(event.ended),
                event.took_ms,
            )
        self._tell(event, incarnation)

    async def _end(self, all_: bool) -> None:
        incarnation = self.incarnation
        if self._wake is not None and not self._wake.done():
            self._wake.cancel()
            await asyncio.wait({self._wake})
        harness, event = self.harness, m.HostEnded((), ())
        if harness is not None:
            event = await harness.end(all_)
        if isinstance(event, m.HostEnded):
            self.harness = None
            event = await self._with_left(event, all_)
        self._tell(event, incarnation)

    async def _with_left(self, event: m.HostEnded, all_: bool) -> m.HostEnded:
        """Adds what left the tree in this life or an earlier one, known by the session's id in its environment."""
        launcher, marks = self._engine.launcher, await self.marks()
        ended = ended_of(await launcher.end_left(marks)) if all_ else ()
        gone = {one.pid for one in ended}
        left = {one.pid: one for one in event.left if one.pid not in gone}
        for row in await launcher.left_running(marks):
            words = tuple(word.encode() for word in row["argv"])
            left.setdefault(row["pid"], m.Ended(row["pid"], command_text(words), "left"))
        return m.HostEnded((*event.ended, *ended), tuple(left.values()))

    async def marks(self) -> list[str]:
        """What work of this session carries in its environment: its id, or a host that was kept ready before it."""
        if self._pooled_hosts is None:
            woken = await self._engine.log.read_kinds(self._actor.session_id, [Kind.WOKE], WAKES_KNOWN)
            told = [parse_json(row.record.body) for row in woken]
            self._pooled_hosts = [woke["hostId"] for woke in told if woke.get("pooled")]
        return [f"ACPMUX_SESSION_ID={self._actor.session_id}", *(f"ACPMUX_HOST={host}" for host in self._pooled_hosts)]

    async def _purge(self, answers: tuple[m.Done, ...]) -> None:
        """Whoever asked is told when nothing of it is stored and its name is free; not stored so, it stays, closed."""
        actor, engine = self._actor, self._engine
        try:
            await engine.log.purge(actor.session_id)
        except StoreError as error:
            for done in answers:
                actor.answers.fail(done.token, error)
            return
        engine.deadlines.disarm(actor.session_id)
        engine.purged(actor)
        for done in answers:
            actor.answers.give(done.token, done)
        actor.abandon()

    def _log_refusal(self, reason: str, blockers: tuple[tuple[int, str], ...]) -> None:
        now = self._engine.clock.now()
        if self._refusal_logged_at is not None and now < self._refusal_logged_at + REFUSAL_LOG_S:
            return
        self._refusal_logged_at = now
        who = " ".join(f"pid={pid} command={command!r}" for pid, command in blockers[:3])
        log.info("stays awake session=%s reason=%r %s", self._actor.session_id, reason, who)
