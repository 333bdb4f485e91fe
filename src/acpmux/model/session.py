"""A session as a value: what is stored of it (`Checkpoint`) and what is true only while this daemon lives (`Live`).

Read next: `rules/messages.py`, what can happen to it.
"""

from dataclasses import dataclass, field
from enum import Enum

from acpmux.model.ids import AgentSessionId, AskId, ClientId, HostId, PromptId, SessionId


class State(Enum):
    HIBERNATED = "hibernated"
    WAKING = "waking"
    READY = "ready"
    RUNNING = "running"
    PARKED = "parked"
    HIBERNATING = "hibernating"
    CLOSED = "closed"


AWAKE = frozenset({State.READY, State.RUNNING, State.HIBERNATING})


class Policy(Enum):
    """How permission requests are answered while no person does (SPEC section 8)."""

    ASK = "ask"
    APPROVE_READS = "approve-reads"
    APPROVE_EDITS = "approve-edits"
    APPROVE_ALL = "approve-all"
    DENY_ALL = "deny-all"


class OnPermission(Enum):
    """What one prompt's sender wants when its turn asks and the policy says `ask`."""

    WAIT = "wait"
    DENY = "deny"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class McpServer:
    """An MCP server over stdio as configured, in the order it is handed to the harness."""

    name: str
    command: str
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt as accepted. `blocks` is the ACP `prompt` array, its JSON untouched."""

    prompt_id: PromptId
    blocks: bytes
    at_ms: int
    on_permission: OnPermission = OnPermission.WAIT


@dataclass(frozen=True, slots=True)
class Turn:
    """A prompt in flight, with how many permissions it asked for and how many of them were denied."""

    prompt: Prompt
    asked: int = 0
    denied: int = 0
    cancelling: bool = False
    rehydrate: bool = False  # the stored conversation goes before it


@dataclass(frozen=True, slots=True)
class Option:
    option_id: str
    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class Ask:
    """A question to a person. `request_id` is the harness's JSON-RPC id as raw JSON, answered under it exactly once."""

    ask_id: AskId
    kind: str
    title: str
    tool_kind: str
    options: tuple[Option, ...]
    request_id: bytes
    params: bytes
    at_ms: int


@dataclass(frozen=True, slots=True)
class ConfigOption:
    """A config option's value as set through `session/set_config_option`; `value` is raw JSON."""

    config_id: str
    value: bytes


@dataclass(frozen=True, slots=True)
class Refusal:
    """The last time a retirement was refused. `blockers` are (pid, command) pairs, fit for a log."""

    at_ms: int
    reason: str
    blockers: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Everything of a session that outlives the daemon. The harness's environment is never in it.

    `modes` and `config_options` are the raw JSON of the last session reply, for clients that attach;
    `mode` and `options` are what is set again and confirmed after every resume.
    """

    session_id: SessionId
    name: str
    agent: str
    cwd: str
    created_at_ms: int
    last_active_at_ms: int
    policy: Policy = Policy.ASK
    idle_after_s: float | None = None  # None: as the config says
    pinned: bool = False  # never sleeps
    command: tuple[str, ...] = ()
    servers: tuple[McpServer, ...] = ()
    nonce: str = ""
    state: State = State.HIBERNATED
    agent_session_id: AgentSessionId | None = None
    prompted: bool = False
    mode: str | None = None
    options: tuple[ConfigOption, ...] = ()
    modes: bytes | None = None
    config_options: bytes | None = None
    title: str | None = None
    usage: bytes | None = None
    queue: tuple[Prompt, ...] = ()
    turn: Turn | None = None
    asks: tuple[Ask, ...] = ()
    host_id: HostId | None = None
    rehydrate: bool = False
    refusals: int = 0
    last_refusal: Refusal | None = None
    last_error: str | None = None


@dataclass(frozen=True, slots=True)
class Attached:
    """A client that follows this session, and when it last showed that a person is there (monotonic)."""

    client_id: ClientId
    touched: float


@dataclass(frozen=True, slots=True)
class PendingRequest:
    """A client's request for the harness that has not been answered. `params` is raw JSON."""

    token: int
    method: str
    params: bytes
    sent: bool = False


class Want(Enum):
    """What is to happen as soon as a retirement or a start under way is over."""

    NOTHING = "nothing"
    WAKE = "wake"
    STOP = "stop"
    CLOSE = "close"
    PURGE = "purge"


@dataclass(frozen=True, slots=True)
class Live:
    """What is true only while this daemon lives; never stored. Times are monotonic seconds.

    `idle_after_s`, `attached_hold_s` (None: always) and `grace_s` are what the config says. `epoch` counts
    activity: a deadline of an
    old epoch is void. `idle_from` is when the last hold ended, None while something holds. `refused` is true from a
    refused
    retirement until the next use. `sleepers`, `wakers` and `stoppers` are the tokens of requests that wait for such
    an end.
    """

    idle_after_s: float | None = 120.0
    attached_hold_s: float | None = 1800.0
    grace_s: float = 5.0
    epoch: int = 0
    idle_from: float | None = None
    armed_at: float | None = None
    clients: tuple[Attached, ...] = ()
    requests: tuple[PendingRequest, ...] = ()
    own_turn_at: float | None = None
    touched_at_ms: int = 0
    host_seq: int = 0  # a HostSeq
    pid: int | None = None
    host_pid: int | None = None
    problems: tuple[str, ...] = ()  # of this start: servers that are not there, configurations that were not understood
    want: Want = Want.NOTHING
    want_all: bool = False
    ending: bool = False
    sleepers: tuple[int, ...] = ()
    wakers: tuple[int, ...] = ()
    stoppers: tuple[int, ...] = ()
    retry_step: int = 0
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Session:
    """One session: `checkpoint` is the fold of its records, `live` starts afresh with each daemon."""

    checkpoint: Checkpoint
    live: Live = field(default_factory=Live)

    @property
    def state(self) -> State:
        return self.checkpoint.state


@dataclass(frozen=True, slots=True)
class Hold:
    """A reason to stay awake. `kind` is one of the contract's words; `until` is monotonic, None when open."""

    kind: str
    detail: str
    until: float | None = None
    pid: int | None = None
    command: str | None = None
