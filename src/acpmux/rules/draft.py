"""The step under way: rules add records and effects to it, and it keeps the state in line with the records."""

import json
from dataclasses import replace
from typing import Any, NamedTuple

from acpmux.model.record import Kind, Record
from acpmux.model.session import Checkpoint, Live, Session
from acpmux.rules.fold import apply, with_tail
from acpmux.rules.messages import Effect


class Step(NamedTuple):
    """What one event led to: the new value, what is to be stored first, what is to be done then."""

    session: Session
    records: tuple[Record, ...]
    effects: tuple[Effect, ...]


class Draft:
    """Mutable for the length of one step and never seen outside the rules."""

    def __init__(self, session: Session, now: float, wall_ms: int, cause: str) -> None:
        self.checkpoint: Checkpoint = session.checkpoint
        self.live: Live = session.live
        self.now = now
        self.wall_ms = wall_ms
        self.cause = cause
        self.records: list[Record] = []
        self.effects: list[Effect] = []

    def record(self, kind: Kind, prompt_id: str | None = None, /, **body: Any) -> None:
        """Adds a record and applies it."""
        self.add(kind, json.dumps(body, separators=(",", ":")).encode(), prompt_id)

    def record_tail(self, kind: Kind, key: str, tail: bytes, prompt_id: str | None = None, /, **head: Any) -> None:
        """Adds a record whose last member keeps somebody else's JSON byte for byte."""
        self.add(kind, with_tail(key, tail, **head), prompt_id)

    def add(self, kind: Kind, body: bytes, prompt_id: str | None = None) -> None:
        record = Record(kind, body, self.cause, self.wall_ms, prompt_id)
        self.records.append(record)
        self.checkpoint = apply(self.checkpoint, record)

    def do(self, effect: Effect) -> None:
        self.effects.append(effect)

    def set(self, **changes: Any) -> None:
        """Changes what is live."""
        self.live = replace(self.live, **changes)

    @property
    def session(self) -> Session:
        return Session(self.checkpoint, self.live)

    def finish(self) -> Step:
        return Step(self.session, tuple(self.records), tuple(self.effects))
