"""Configuration as values: what the user set and what a profile knows of an agent. Parsing is elsewhere."""

from dataclasses import dataclass, field

from acpmux.model.process import CoreRule
from acpmux.model.session import McpServer


@dataclass(frozen=True, slots=True)
class Profile:
    """How an agent is started and what is known of it. Data of `agents/data/*.toml`.

    `install` is what a person types to get it; `prefer_load` resumes by session/load, its replay swallowed;
    `settle` makes the first prompt wait for the servers. `poolable`: folder and servers come with the session request,
    so that it can be started ahead. `configs` are the configurations (of `census/readers.py`) in which it finds
    servers of its own, read at its "start" or with each "session" request (`configs_at`). `core_env`
    names variables that hold a program of the agent's core, each with an argument that program is started with.
    """

    name: str
    title: str
    command: tuple[str, ...]
    install: str = ""
    package: str = ""  # the npm package its program belongs to, where two packages install the same name
    homepage: str = ""
    aliases: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    unset: tuple[str, ...] = ()
    anatomy: tuple[CoreRule, ...] = ()
    prefer_load: bool = False
    settle: bool = False
    poolable: bool = False
    configs: tuple[str, ...] = ()
    configs_at: str = "start"
    core_env: tuple[tuple[str, str], ...] = ()
    marker_required: bool = True
    retire_signal: str = "term"


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """`[agents.NAME]`: what the user set for one agent; None or empty leaves the profile's word."""

    name: str
    command: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    idle_after_s: float | None = None
    pinned: bool = False  # idle_after = "never"
    core: tuple[str, ...] = ()
    mcp_servers: tuple[McpServer, ...] = ()
    direct: bool = False  # hosting = "direct": its host ends it when the daemon goes
    pool: int = 0  # hosts kept ready
    profile: str | None = None  # whose profile this agent follows, when its name is not one itself


@dataclass(frozen=True, slots=True)
class IdleConfig:
    """`[idle]`. Seconds; `after_s` None never sleeps, `attached_s` None counts an attached client always."""

    after_s: float | None = 120.0
    attached_s: float | None = 1800.0
    grace_s: float = 5.0
    park: bool = True


@dataclass(frozen=True, slots=True)
class StartConfig:
    """`[start]`: the budgets of a start, for slow machines. Seconds."""

    initialize_s: float = 60.0
    session_s: float = 120.0


@dataclass(frozen=True, slots=True)
class Config:
    default_agent: str | None = None
    idle: IdleConfig = field(default_factory=IdleConfig)
    start: StartConfig = field(default_factory=StartConfig)
    agents: tuple[AgentConfig, ...] = ()
    mcp_servers: tuple[McpServer, ...] = ()
