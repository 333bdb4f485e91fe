"""A session into a bundle, and a bundle into a session of this home.

What could be run does not travel: an imported session is started as this home's config says, never as the bundle does.
"""

import json
from dataclasses import dataclass, field, replace

import msgspec

from acpmux.errors import UsageFault
from acpmux.hub.actor import Actor
from acpmux.model.ids import AgentSessionId, PromptId, Seq, SessionId
from acpmux.model.record import Kind, Record, Stored
from acpmux.model.session import Checkpoint, ConfigOption, Policy, State
from acpmux.ports import EventLog
from acpmux.wire import bundle

_ENDS = (Kind.TURN_ENDED, Kind.TURN_FAILED)


def head_of(actor: Actor) -> bundle.Head:
    checkpoint = actor.session.checkpoint
    return bundle.Head(
        bundle.FORMAT,
        bundle.VERSION,
        checkpoint.name,
        checkpoint.agent,
        checkpoint.cwd,
        checkpoint.created_at_ms,
        checkpoint.policy.value,
        actor.seq,
        checkpoint.agent_session_id,
        checkpoint.prompted,
        checkpoint.mode,
        [(option.config_id, msgspec.Raw(option.value)) for option in checkpoint.options],
        checkpoint.title,
        checkpoint.idle_after_s,
        checkpoint.pinned,
        [server.name for server in checkpoint.servers],
    )


def restored(head: bundle.Head, fresh: Checkpoint) -> Checkpoint:
    """`fresh`, as this home makes a session of that agent, with what the bundle tells of it."""
    options = tuple(ConfigOption(config_id, bytes(value)) for config_id, value in head.options)
    return replace(
        fresh,
        created_at_ms=head.created_at_ms,
        last_active_at_ms=head.created_at_ms,
        policy=Policy(head.policy),
        idle_after_s=head.idle_after_s,
        pinned=head.pinned,
        agent_session_id=None if head.agent_session_id is None else AgentSessionId(head.agent_session_id),
        prompted=head.prompted,
        mode=head.mode,
        options=options,
        title=head.title,
    )


@dataclass(slots=True)
class Import:
    """One bundle on its way in. Its records are stored as they come, under a name that says so, until it is whole."""

    log: EventLog
    head: bundle.Head
    checkpoint: Checkpoint
    seq: Seq = field(default_factory=lambda: Seq(0))
    open_prompts: dict[str, None] = field(default_factory=dict[str, None])

    @property
    def session_id(self) -> SessionId:
        return self.checkpoint.session_id

    async def take(self, lines: list[bytes]) -> None:
        """Raises: UsageFault for what is no record, or not the next one; StoreError."""
        rows: list[Stored] = []
        for line in lines:
            rows.append(bundle.decode_record(line, Seq(self.seq + len(rows) + 1)))
        for row in rows:
            self._follow(row)
        await self._store(rows, replace(self.checkpoint, name=f"{self.checkpoint.name}-half", state=State.CLOSED))

    async def finish(self, now_ms: int) -> None:
        """A turn that the bundle does not see the end of gets one: its outcome is unknown here.

        Raises: UsageFault for a bundle that was cut.
        """
        if self.seq != self.head.last_seq:
            raise UsageFault(f"the bundle ends at record {self.seq} of {self.head.last_seq}: it was cut")
        message = "the session was exported in the middle of the turn; its outcome is unknown here"
        told = {"code": "outcome_unknown", "message": message, "asked": 0, "denied": 0, "error": None}
        bodies = [json.dumps({"promptId": prompt_id, **told}).encode() for prompt_id in self.open_prompts]
        rows = [
            Stored(Seq(self.seq + number), Record(Kind.TURN_FAILED, body, "import", now_ms, PromptId(prompt_id)))
            for number, (prompt_id, body) in enumerate(zip(self.open_prompts, bodies, strict=True), 1)
        ]
        await self._store(rows, self.checkpoint)

    def _follow(self, row: Stored) -> None:
        prompt_id = row.record.prompt_id
        if prompt_id is not None and row.record.kind is Kind.PROMPTED:
            self.open_prompts[prompt_id] = None
        elif prompt_id is not None and row.record.kind in _ENDS:
            self.open_prompts.pop(prompt_id, None)

    async def _store(self, rows: list[Stored], checkpoint: Checkpoint) -> None:
        await self.log.commit(self.session_id, rows, checkpoint)
        self.seq = Seq(self.seq + len(rows))
