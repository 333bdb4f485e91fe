"""A session driven by events alone: a test reads as a dialogue of what happened and what was asked for."""

from acpmux.model.ids import AgentSessionId, HostId, HostSeq, PromptId, SessionId
from acpmux.model.record import Kind, Record
from acpmux.model.session import Checkpoint, Live, OnPermission, Option, Prompt, Session, State
from acpmux.rules import messages as m
from acpmux.rules.draft import Step
from acpmux.rules.lifecycle import step

BLOCKS = b'[{"type":"text","text":"hi"}]'
OPTIONS = (
    Option("yes", "Yes", "allow_once"),
    Option("always", "Always", "allow_always"),
    Option("no", "No", "reject_once"),
)


def prompt(prompt_id: str = "p1", on_permission: OnPermission = OnPermission.WAIT) -> Prompt:
    return Prompt(PromptId(prompt_id), BLOCKS, 0, on_permission)


def permission(request_id: bytes = b"7", tool_kind: str = "edit") -> m.PermissionRequest:
    return m.PermissionRequest(request_id, b'{"toolCall":{}}', "write x", tool_kind, OPTIONS)


WOKE = m.Woke(HostId("h1"), AgentSessionId("agent-1"), "new", 11, 10, HostSeq(3), "default", None, None, (), 5)
EXITED = m.HarnessExited(1, None, "boom")


class Dialogue:
    """`tell` steps an event at the dialogue's own time; `effects` and `kinds` are what the last one led to."""

    def __init__(self, checkpoint: Checkpoint | None = None, live: Live | None = None) -> None:
        start = checkpoint or Checkpoint(SessionId("s1"), "one", "demo", "/tmp", 0, 0)
        self.first = start
        self.session = Session(start, live or Live())
        self.now = 1000.0
        self.records: list[Record] = []
        self.last: Step | None = None
        self._token = 0
        self._host_seq = 3

    def tell(self, event: m.Event) -> tuple[m.Effect, ...]:
        self.last = step(self.session, event, self.now, round(self.now * 1000), type(event).__name__)
        self.session = self.last.session
        self.records += self.last.records
        return self.last.effects

    @property
    def state(self) -> State:
        return self.session.state

    @property
    def kinds(self) -> list[Kind]:
        return [record.kind for record in self.last.records] if self.last else []

    def token(self) -> int:
        self._token += 1
        return self._token

    def host_seq(self) -> HostSeq:
        self._host_seq += 1
        return HostSeq(self._host_seq)

    # ------------------------------------------------------------ common openings

    def ask(self, prompt_id: str = "p1", **more: OnPermission) -> tuple[m.Effect, ...]:
        return self.tell(m.PromptAsked(self.token(), prompt(prompt_id, **more)))

    def say(self, said: m.Said) -> tuple[m.Effect, ...]:
        return self.tell(m.HarnessSaid(self.host_seq(), said))

    def end_turn(self, prompt_id: str = "p1") -> tuple[m.Effect, ...]:
        result = b'{"stopReason":"end_turn"}'
        return self.tell(m.TurnEnded(self.host_seq(), PromptId(prompt_id), "end_turn", result))

    def ready(self) -> "Dialogue":
        self.tell(m.WakeAsked(self.token()))
        self.tell(WOKE)
        return self

    def armed(self) -> m.IdleDue:
        """The deadline that is set now, as the event it will bring."""
        assert self.session.live.armed_at is not None, "no deadline is set"
        return m.IdleDue(self.session.live.epoch)

    def fall_asleep(self) -> tuple[m.Effect, ...]:
        """Lets the deadline come: the Retire is among the effects when nothing held it."""
        due = self.armed()
        self.now = self.session.live.armed_at or self.now
        return self.tell(due)


def of(effects: tuple[m.Effect, ...], kind: type) -> list[m.Effect]:
    return [effect for effect in effects if isinstance(effect, kind)]
