"""One session's mailbox: events in, one commit a batch, then effects out.

Its one rule: records before effects. Whatever a step decided is in the log before anybody hears of it. There are no
locks:
only this task changes the session. Read next: `rules/lifecycle.py`, what it decides, and `hub/effects.py`, how it
is done.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple

from acpmux.errors import AcpmuxError, Internal, NoSuchSession, StoreError
from acpmux.hub.answers import Answer, Answers, error_of, outcome_of
from acpmux.hub.effects import Effects
from acpmux.hub.feed import Bell
from acpmux.model.ids import HostSeq, PromptId, Seq, SessionId
from acpmux.model.record import Kind, Record, Stored
from acpmux.model.session import Prompt, Session
from acpmux.ports import Clock, EventLog
from acpmux.rules import lifecycle
from acpmux.rules import messages as m

BATCH = 500  # events a commit: 64,900 steps a second so, 4,390 with a commit each (measured)
RETRY_S = 1.0  # a store that failed (a full disk) is tried again for what the harness said, which can't be asked again

log = logging.getLogger(__name__)

_OF_A_CLIENT = (
    m.PromptAsked,
    m.RequestAsked,
    m.AskAnswered,
    m.WakeAsked,
    m.SleepAsked,
    m.StopAsked,
    m.ChangeAsked,
)


class Posted(NamedTuple):
    """One event in the mailbox; `incarnation` is that of the harness it came from, None for all others."""

    event: m.Event
    cause: str
    incarnation: int | None


class Actor:
    """The one writer of one session. `session` and `seq` are what is committed."""

    def __init__(self, session: Session, seq: Seq, log_: EventLog, clock: Clock, effects: Callable[["Actor"], Effects]):
        self.session = session
        self.seq = seq
        self.log = log_
        self.clock = clock
        self.bell = Bell()
        self.answers = Answers()
        self.purged = False
        self._mailbox: list[Posted] = []
        self._mail = asyncio.Event()
        self._barriers: list[asyncio.Future[None]] = []
        self._causes = 0
        self._started_at: dict[PromptId, Seq] = {}
        self.effects = effects(self)

    @property
    def session_id(self) -> SessionId:
        return self.session.checkpoint.session_id

    # ------------------------------------------------------------ the mailbox

    def tell(self, event: m.Event, cause: str | None = None, incarnation: int | None = None) -> None:
        """Puts an event into the mailbox; it is decided in order."""
        self._causes += 1
        self._mailbox.append(Posted(event, cause or f"{type(event).__name__}#{self._causes}", incarnation))
        self._mail.set()

    async def ask(self, make: Callable[[int], m.Event]) -> Answer:
        """Tells the event that `make` builds from a token, and waits for its answer.

        Raises: the AcpmuxError that a Reject stands for; NoSuchSession when it was removed.
        """
        token, future = self._open()
        self.tell(make(token))
        try:
            return await future
        finally:
            self.answers.forget(token)

    async def enqueue(self, prompt: Prompt) -> str:
        """Stores a prompt and returns without waiting for its turn: "queued", "running", or "done" for an id that
        ran before.

        Raises: StoreError or NoSuchSession; then it is not stored.
        """
        token, future = self._open()
        self.tell(m.PromptAsked(token, prompt))
        stored = self.decided()
        await asyncio.wait({future, stored}, return_when=asyncio.FIRST_COMPLETED)
        if future.done():
            future.result()
            return "done"
        self.answers.forget(token)
        turn = self.session.checkpoint.turn
        return "running" if turn is not None and turn.prompt.prompt_id == prompt.prompt_id else "queued"

    def abandon(self) -> None:
        """It was removed, or its first record could not be stored: its task ends, and whoever still waits is told."""
        self.purged = True
        self.answers.fail_all(self._no_such())
        self._mail.set()

    def _open(self) -> "tuple[int, asyncio.Future[Answer]]":
        if self.purged:
            raise self._no_such()
        return self.answers.open()

    def _no_such(self) -> NoSuchSession:
        return NoSuchSession(f"{self.session.checkpoint.name} is no more: it was removed")

    def decided(self) -> "asyncio.Future[None]":
        """Resolved when everything in the mailbox now has been decided and stored."""
        self._barriers.append(asyncio.get_running_loop().create_future())
        self._mail.set()
        return self._barriers[-1]

    def started_at(self, prompt_id: PromptId) -> Seq:
        """The seq of the record with which this prompt's turn began."""
        return self._started_at[prompt_id]

    async def find_started(self, prompt_id: PromptId) -> Seq | None:
        """The same for a turn that began under an earlier daemon, from the log."""
        for row in await self.log.read_prompt(self.session_id, prompt_id):
            if row.record.kind is Kind.TURN_STARTED:
                self._started_at[prompt_id] = row.seq
        return self._started_at.get(prompt_id)

    async def run(self) -> None:
        """Drains the mailbox until the session is purged or the task is cancelled."""
        while not self.purged:
            await self._mail.wait()
            self._mail.clear()
            while self._mailbox and not self.purged:
                batch, self._mailbox = self._mailbox[:BATCH], self._mailbox[BATCH:]
                await self._handle_safely(batch)
            for barrier in self._barriers:
                if not barrier.done():
                    barrier.set_result(None)
            self._barriers.clear()

    # ------------------------------------------------------------ one batch

    async def _handle_safely(self, batch: list[Posted]) -> None:
        """A fault of ours costs the one event that met it, never the session: this task must not end."""
        try:
            await self._handle(batch)
        except Exception as error:
            if len(batch) > 1:
                for posted in batch:
                    await self._handle_safely([posted])
                return
            (posted,) = batch
            log.exception("event failed session=%s event=%s", self.session_id, type(posted.event).__name__)
            known = isinstance(error, AcpmuxError)
            self._reject(posted.event, error if known else Internal(f"acpmux failed at this: {error!r}"))
            instead = _instead(posted.event)
            if instead is not None:
                await self._handle_safely([posted._replace(event=instead)])

    async def _handle(self, batch: list[Posted]) -> None:
        session, records, effects = self.session, list[Record](), list[m.Effect]()
        now, wall_ms = self.clock.now(), self.clock.wall_ms()
        for posted in batch:
            if posted.incarnation is not None and posted.incarnation != self.effects.incarnation:
                continue  # the last words of a harness that was ended
            if isinstance(posted.event, m.PromptAsked) and await self._answered(session, posted.event):
                continue
            try:
                step = lifecycle.step(session, posted.event, now, wall_ms, posted.cause)
            except lifecycle.IllegalEvent as error:
                log.error("illegal event=%s", error)
                self._reject(posted.event, Internal(str(error)))
                continue
            session = step.session
            records += step.records
            effects += step.effects
        try:
            rows = await self._commit(session, records)
        except StoreError as error:
            await self._not_stored(batch, error)
            return
        self.session = session
        self.effects.stored(session.live.host_seq)
        if rows:
            self.bell.ring()
        for effect in effects:
            try:
                self._perform(effect, rows)
            except Exception:  # what was decided is stored; one hand that fails must not keep back the others
                log.exception("effect failed session=%s effect=%s", self.session_id, type(effect).__name__)

    async def _commit(self, session: Session, records: list[Record]) -> list[Stored]:
        rows = [Stored(Seq(self.seq + number), record) for number, record in enumerate(records, 1)]
        changed = session.checkpoint is not self.session.checkpoint and session.checkpoint != self.session.checkpoint
        if rows or changed:
            checkpoint = session.checkpoint if changed else None
            await self.log.commit(self.session_id, rows, checkpoint, HostSeq(session.live.host_seq))
        if rows:
            self.seq = rows[-1].seq
        for row in rows:
            if row.record.kind is Kind.TURN_STARTED and row.record.prompt_id:
                self._started_at[PromptId(row.record.prompt_id)] = row.seq
        return rows

    async def _answered(self, session: Session, event: m.PromptAsked) -> bool:
        """True when this prompt needs no step: it ran before, or the log can't say whether it did."""
        try:
            return await self._known(session, event)
        except StoreError as error:
            self.answers.fail(event.token, error)
            return True

    async def _known(self, session: Session, event: m.PromptAsked) -> bool:
        """A prompt id that ran once gets the first outcome, also from an earlier daemon."""
        checkpoint, prompt_id = session.checkpoint, event.prompt.prompt_id
        current = checkpoint.turn.prompt.prompt_id if checkpoint.turn else None
        if prompt_id == current or any(p.prompt_id == prompt_id for p in checkpoint.queue):
            return False
        outcome = outcome_of(await self.log.read_prompt(self.session_id, prompt_id))
        if outcome is not None:
            self.answers.give(event.token, outcome)
        return outcome is not None

    async def _not_stored(self, batch: list[Posted], error: StoreError) -> None:
        """Clients are told; what a harness or host said is kept and tried again."""
        log.error("commit failed session=%s error=%s", self.session_id, error.message)
        for posted in batch:
            self._reject(posted.event, error)
        kept = [posted for posted in batch if not isinstance(posted.event, _OF_A_CLIENT)]
        self._mailbox = kept + self._mailbox
        if kept:
            await self.clock.sleep(RETRY_S)

    def _reject(self, event: m.Event, error: AcpmuxError) -> None:
        if isinstance(event, _OF_A_CLIENT):
            self.answers.fail(event.token, error)

    # ------------------------------------------------------------ effects

    def _perform(self, effect: m.Effect, rows: list[Stored]) -> None:
        match effect:
            case m.Join(token, prompt_id):
                self.answers.join(token, prompt_id)
            case m.Done(token):
                self.answers.give(token, effect)
            case m.Reply(token):
                self.answers.give(token, effect)
            case m.Reject(token):
                self.answers.fail(token, error_of(effect, self.session_id))
            case m.RejectPrompts(code, message):
                self.answers.fail_joined(error_of(m.Reject(0, code, message), self.session_id))
            case m.Resolve(prompt_id):
                started = self._started_at.pop(prompt_id, None)
                outcome = outcome_of((row for row in rows if row.record.prompt_id == prompt_id), started)
                if outcome is not None:
                    self.answers.resolve(outcome)
            case _:
                self.effects.perform(effect)


def _instead(event: m.Event) -> m.Event | None:
    """What stands for a harness's word that could not be taken: a turn must end all the same, and the word is shown."""
    match event:
        case m.HarnessSaid(host_seq, said) if not isinstance(said, m.Noise):
            sample = ascii(said)[:500]
            return m.HarnessSaid(host_seq, m.Noise(f"acpmux failed at this {type(said).__name__}", sample))
        case m.TurnEnded(host_seq, prompt_id):
            text = "acpmux failed at the agent's answer, which is in its log"
            return m.TurnFailed(host_seq, prompt_id, -32603, text, b"null")
        case _:
            return None
