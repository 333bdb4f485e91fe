"""A row of the log, and the kinds there are."""

from dataclasses import dataclass
from enum import Enum

from acpmux.model.ids import Seq


class Kind(Enum):
    """What a record says happened. `UPDATE` and `REQUEST` hold a harness's own JSON untouched."""

    CREATED = "created"
    CHANGED = "changed"
    PROMPTED = "prompted"
    WAKING = "waking"
    WOKE = "woke"
    WAKE_FAILED = "wake_failed"
    TURN_STARTED = "turn_started"
    TURN_ENDED = "turn_ended"
    TURN_FAILED = "turn_failed"
    CANCELLED = "cancelled"
    UPDATE = "update"
    REQUEST = "request"
    ASK_OPENED = "ask_opened"
    ASK_RESOLVED = "ask_resolved"
    SETTING = "setting"
    HIBERNATING = "hibernating"
    HIBERNATED = "hibernated"
    RETIRE_REFUSED = "retire_refused"
    EXITED = "exited"
    STOPPED = "stopped"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Record:
    """One thing that happened. `body` is JSON; `cause` is the id of the request or event behind it.

    `prompt_id` ties the records of one prompt together. The seq is given by the log at the commit: see `Stored`.
    """

    kind: Kind
    body: bytes
    cause: str
    at_ms: int
    prompt_id: str | None = None


@dataclass(frozen=True, slots=True)
class Stored:
    """A record with its number."""

    seq: Seq
    record: Record
