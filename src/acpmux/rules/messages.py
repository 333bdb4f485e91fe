"""The two vocabularies: every Event that can happen to a session, every Effect that may be asked for.

An effect ends in at most one event and returns a value no other way.
"""

from dataclasses import dataclass

from acpmux.model.ids import AgentSessionId, AskId, ClientId, HostId, HostSeq, PromptId
from acpmux.model.process import Blocker
from acpmux.model.session import ConfigOption, Option, Policy, Prompt

# ---------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class PromptAsked:
    """`token` is answered by Resolve or Reject; a prompt id seen before gets the first outcome."""

    token: int
    prompt: Prompt


@dataclass(frozen=True, slots=True)
class CancelAsked:
    """The running turn, else every prompt that has not begun; with `prompt_id` that prompt alone, queued or running."""

    prompt_id: PromptId | None = None


@dataclass(frozen=True, slots=True)
class RequestAsked:
    """A client's request for the harness, answered by Reply with the same token.

    `params` names our session id nowhere.
    """

    token: int
    method: str
    params: bytes


@dataclass(frozen=True, slots=True)
class NotificationAsked:
    method: str
    params: bytes


@dataclass(frozen=True, slots=True)
class AskAnswered:
    """`choice` is an option id, or "allow" or "deny" to choose by kind, or "cancelled"."""

    token: int
    ask_id: AskId | None
    choice: str
    by: str


@dataclass(frozen=True, slots=True)
class ClientAttached:
    client_id: ClientId


@dataclass(frozen=True, slots=True)
class ClientTouched:
    client_id: ClientId


@dataclass(frozen=True, slots=True)
class ClientDetached:
    client_id: ClientId


@dataclass(frozen=True, slots=True)
class WakeAsked:
    """`token` is answered by Done when the session is READY, by Reject when the wake failed."""

    token: int


@dataclass(frozen=True, slots=True)
class SleepAsked:
    """`acpmux hibernate`: ignores the deadline and attached clients and nothing else."""

    token: int


@dataclass(frozen=True, slots=True)
class StopAsked:
    """`all` ends left-running work too; `close` makes it final; `purge` also deletes."""

    token: int
    all: bool = False
    close: bool = False
    purge: bool = False


@dataclass(frozen=True, slots=True)
class ChangeAsked:
    """Our own settings of a session; absent (None) fields stay as they are."""

    token: int
    name: str | None = None
    policy: Policy | None = None
    idle_after_s: float | None = None
    pinned: bool = False
    title: str | None = None


@dataclass(frozen=True, slots=True)
class IdleDue:
    epoch: int


# what a harness says, as neutral values: the encoding stays in `wire`


@dataclass(frozen=True, slots=True)
class Update:
    """A session/update.

    `params` is its raw JSON; `kind` its sessionUpdate; the optional fields are what some kinds tell.
    """

    kind: str
    params: bytes
    mode: str | None = None
    title: str | None = None
    usage: bytes | None = None
    config_options: bytes | None = None


@dataclass(frozen=True, slots=True)
class PermissionRequest:
    request_id: bytes
    params: bytes
    title: str
    tool_kind: str
    options: tuple[Option, ...]


@dataclass(frozen=True, slots=True)
class OtherRequest:
    """A request nobody can serve here; answered -32601 at once."""

    request_id: bytes
    method: str
    params: bytes


@dataclass(frozen=True, slots=True)
class OtherNotification:
    """`withdraws` is the raw request id that a `$/cancel_request` names."""

    method: str
    params: bytes
    withdraws: bytes | None = None


@dataclass(frozen=True, slots=True)
class Noise:
    """A line that is no message; kept in a record, cut, so that a person can see it. `skipped` before it were not."""

    reason: str
    sample: str
    skipped: int = 0


@dataclass(frozen=True, slots=True)
class Skipped:
    """A line of which no more is kept than that it was said."""


Said = Update | PermissionRequest | OtherRequest | OtherNotification | Noise | Skipped


@dataclass(frozen=True, slots=True)
class HarnessSaid:
    host_seq: HostSeq
    said: Said


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """`result` is the raw JSON of the answer to session/prompt."""

    host_seq: HostSeq
    prompt_id: PromptId
    stop_reason: str
    result: bytes


@dataclass(frozen=True, slots=True)
class TurnFailed:
    """The harness answered session/prompt with an error, whose raw JSON is `error`."""

    host_seq: HostSeq
    prompt_id: PromptId
    code: int
    message: str
    error: bytes


@dataclass(frozen=True, slots=True)
class RequestAnswered:
    """The harness answered a forwarded request. `ok` says whether `payload` is its result or its error object.

    `setting` is what an accepted set_mode or set_config_option set, as the members of a `setting` record.
    """

    host_seq: HostSeq
    token: int
    ok: bool
    payload: bytes
    setting: tuple[tuple[str, object], ...] | None = None


@dataclass(frozen=True, slots=True)
class Woke:
    """The harness is up: its session stands, mode and options are confirmed, its servers are settled.

    `how` is new, resume, load or rehydrated; `pooled`: its host was kept ready.
    `modes` and `config_options` are raw JSON of the session reply.
    """

    host_id: HostId
    agent_session_id: AgentSessionId
    how: str
    pid: int
    host_pid: int
    host_seq: HostSeq
    mode: str | None
    modes: bytes | None
    config_options: bytes | None
    options: tuple[ConfigOption, ...]
    took_ms: int
    problems: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    servers: tuple[tuple[str, str], ...] = ()
    pooled: bool = False


@dataclass(frozen=True, slots=True)
class WakeFailed:
    """Both tries failed; nothing of them is left running. `message` says what to do next."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Ended:
    """One process that was ended, or left: (pid, command, how)."""

    pid: int
    command: str
    how: str


@dataclass(frozen=True, slots=True)
class Retired:
    ended: tuple[Ended, ...]
    left: tuple[Ended, ...]
    freed_bytes: int
    took_ms: int


@dataclass(frozen=True, slots=True)
class RetireRefused:
    kind: str
    reason: str
    retry: bool
    blockers: tuple[Blocker, ...]


@dataclass(frozen=True, slots=True)
class BlockersGone:
    """Everybody whom the last refused retirement named has ended: a whole period begins."""


@dataclass(frozen=True, slots=True)
class HarnessExited:
    """The harness ended on its own, or its host was lost (`lost`)."""

    code: int | None
    signal: int | None
    stderr: str
    ended: tuple[Ended, ...] = ()
    left: tuple[Ended, ...] = ()
    lost: bool = False

    @property
    def how(self) -> str:
        return f"by signal {self.signal}" if self.signal else f"with code {self.code}"


@dataclass(frozen=True, slots=True)
class HostEnded:
    ended: tuple[Ended, ...]
    left: tuple[Ended, ...]


@dataclass(frozen=True, slots=True)
class HostSurvived:
    reason: str


@dataclass(frozen=True, slots=True)
class Adopted:
    """A new daemon is linked to the host that an earlier one started.

    `retiring`: past the first signal of its end. `problems`: of its start, as the host still knows them.
    """

    pid: int
    host_pid: int
    retiring: bool
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Recovered:
    """A new daemon has read this session from the store, and no harness of it runs any more."""


Event = (
    PromptAsked
    | CancelAsked
    | RequestAsked
    | NotificationAsked
    | AskAnswered
    | ClientAttached
    | ClientTouched
    | ClientDetached
    | WakeAsked
    | SleepAsked
    | StopAsked
    | ChangeAsked
    | IdleDue
    | HarnessSaid
    | TurnEnded
    | TurnFailed
    | RequestAnswered
    | Woke
    | WakeFailed
    | Retired
    | RetireRefused
    | BlockersGone
    | HarnessExited
    | HostEnded
    | HostSurvived
    | Adopted
    | Recovered
)

# ---------------------------------------------------------------- effects


@dataclass(frozen=True, slots=True)
class Wake:
    """Start a host and its harness, then resume or begin the session. Ends in Woke or WakeFailed."""


@dataclass(frozen=True, slots=True)
class SendPrompt:
    """Ends in TurnEnded or TurnFailed (or HarnessExited)."""

    prompt: Prompt
    rehydrate: bool = False


@dataclass(frozen=True, slots=True)
class SendCancel:
    pass


@dataclass(frozen=True, slots=True)
class SendRequest:
    """Ends in RequestAnswered."""

    token: int
    method: str
    params: bytes


@dataclass(frozen=True, slots=True)
class SendNotification:
    method: str
    params: bytes


@dataclass(frozen=True, slots=True)
class AnswerHarness:
    """Answers the harness's own request: `result` raw JSON, or an error code and message.

    `key` is the request's in its incarnation: a host hands an answer over once.
    """

    key: str
    request_id: bytes
    result: bytes | None = None
    error_code: int = 0
    error_message: str = ""


@dataclass(frozen=True, slots=True)
class Retire:
    """Ends in Retired or RetireRefused (or HarnessExited)."""

    after: HostSeq
    grace_s: float


@dataclass(frozen=True, slots=True)
class RetireCancel:
    pass


@dataclass(frozen=True, slots=True)
class EndHost:
    """Row 6: no census. Ends in HostEnded or HostSurvived."""

    all: bool


@dataclass(frozen=True, slots=True)
class LetHostGo:
    """Its harness has ended and all of it is stored: the host may exit."""


@dataclass(frozen=True, slots=True)
class Arm:
    at: float
    epoch: int


@dataclass(frozen=True, slots=True)
class Disarm:
    pass


@dataclass(frozen=True, slots=True)
class Resolve:
    """The turn of this prompt is over, in the record just committed: everyone who waits for it is told."""

    prompt_id: PromptId


@dataclass(frozen=True, slots=True)
class Join:
    """`token` waits for this prompt's outcome (the first asker and every repeat)."""

    token: int
    prompt_id: PromptId


@dataclass(frozen=True, slots=True)
class Done:
    """The request behind `token` is done; `detail` is what its answer tells, as (key, value) pairs."""

    token: int
    detail: tuple[tuple[str, object], ...] = ()


@dataclass(frozen=True, slots=True)
class Reply:
    """The harness's answer to a forwarded request, untouched."""

    token: int
    ok: bool
    payload: bytes


@dataclass(frozen=True, slots=True)
class Reject:
    """The request behind `token` failed. `code` is a stable code of `errors.py`; `blockers` are (pid, command, why)."""

    token: int
    code: str
    message: str
    blockers: tuple[tuple[int, str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class RejectPrompts:
    """Whoever waits for a prompt is told that it is kept and why it does not run; a later wake runs it."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class LogRefusal:
    """One INFO line about a refused retirement, at most every 10 minutes a session."""

    reason: str
    blockers: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class Purge:
    """Delete everything stored of this session, then tell whoever asked."""

    answers: tuple[Done, ...]


Effect = (
    Wake
    | SendPrompt
    | SendCancel
    | SendRequest
    | SendNotification
    | AnswerHarness
    | Retire
    | RetireCancel
    | EndHost
    | LetHostGo
    | Arm
    | Disarm
    | Resolve
    | Join
    | Done
    | Reply
    | Reject
    | RejectPrompts
    | LogRefusal
    | Purge
)
