"""What a session's harness is started with.

Always the same command, arguments, folder and servers, in the same order.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace

from acpmux.census.identity import is_interpreter
from acpmux.model.config import AgentConfig, Config, Profile
from acpmux.model.ids import HostId, SessionId
from acpmux.model.process import CoreRule, Server
from acpmux.model.session import Checkpoint, McpServer
from acpmux.ports import LaunchSpec

# marks of somebody else's agent or of another session, in whose shell the daemon may have been started: with them
# every process of every session would look like that one's command
FOREIGN_MARKS = frozenset(
    {"ACPMUX_MCP", "AI_AGENT", "CLAUDE_PID", "CLAUDECODE", "CLAUDE_CODE_SESSION_ID", "CLAUDE_CODE_CHILD_SESSION"}
)
OF_ONE_START = ("ACPMUX_HOST", "ACPMUX_SESSION_ID")  # in a harness's environment; all else is the same for each session
MARKER = "ACPMUX_MCP"  # in a server's environment; its value is the session's nonce and the server's name


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the daemon gives every harness: its own environment and where it listens; and what the machine has."""

    env: Mapping[str, str]
    socket: str
    memory_bytes: int = 0


def new_nonce() -> str:
    return secrets.token_hex(8)


def marker(nonce: str, server_name: str) -> str:
    return f"{nonce}:{server_name}"


def marked(servers: tuple[McpServer, ...], nonce: str) -> tuple[McpServer, ...]:
    """The servers as they are handed to the harness, each with the session's marker in its environment."""
    return tuple(
        McpServer(
            s.name,
            s.command,
            s.args,
            (*(e for e in s.env if e[0] != MARKER), (MARKER, marker(nonce, s.name))),
        )
        for s in servers
    )


def effective_servers(config: Config, agent: AgentConfig | None, given: tuple[McpServer, ...]) -> tuple[McpServer, ...]:
    """The servers of one session in order: global, the agent's, the request's.

    Of one name the last definition holds.
    """
    by_name: dict[str, McpServer] = {}
    for server in (*config.mcp_servers, *(agent.mcp_servers if agent else ()), *given):
        by_name[server.name] = server
    return tuple(by_name.values())


def launch_spec(
    checkpoint: Checkpoint, profile: Profile, agent: AgentConfig | None, around: Surroundings
) -> LaunchSpec:
    """Everything a host needs. The environment is the daemon's own, the profile's and the agent's, in that order."""
    host_id = HostId("h" + secrets.token_hex(6))
    env = {key: value for key, value in around.env.items() if key not in FOREIGN_MARKS and key not in profile.unset}
    env |= dict(profile.env)
    env |= dict(agent.env) if agent else {}
    env |= {
        "ACPMUX_SOCKET": around.socket,
        "ACPMUX_HOST": host_id,
        "ACPMUX_SESSION_ID": checkpoint.session_id,
    }
    own_core = tuple(CoreRule(program) for program in (agent.core if agent else ()))
    own_core += tuple(rule for name, arg in profile.core_env for rule in _core_of(env.get(name, ""), arg or None))
    return LaunchSpec(
        host_id=host_id,
        session_id=checkpoint.session_id,
        command=checkpoint.command,
        cwd=checkpoint.cwd,
        env=env,
        anatomy=(*profile.anatomy, *own_core),
        servers=tuple(
            Server(s.name, s.command, s.args, marker(checkpoint.nonce, s.name), "acp") for s in checkpoint.servers
        ),
        configs=profile.configs,
        configs_at=profile.configs_at,
        marker_required=profile.marker_required,
        retire_signal=profile.retire_signal,
        direct=agent is not None and agent.direct,
    )


def kept_ready(spec: LaunchSpec) -> LaunchSpec:
    """The same start ahead of any session: equal but for its host id where one start can stand in for the other.

    It runs in `/`, which is no project of anybody's, and ends with the daemon while nobody has taken it.
    """
    host_id = HostId("h" + secrets.token_hex(6))
    env = {key: value for key, value in spec.env.items() if key not in OF_ONE_START} | {"ACPMUX_HOST": host_id}
    return replace(spec, host_id=host_id, session_id=SessionId(""), cwd="/", env=env, servers=(), direct=True)


def can_stand_in(ready: LaunchSpec, wanted: LaunchSpec) -> bool:
    """Whether a host that was started by `ready` is what `wanted` would start."""
    ours, theirs = _bare(ready), _bare(kept_ready(wanted))
    return ours == theirs


def _bare(spec: LaunchSpec) -> LaunchSpec:
    env = {key: value for key, value in spec.env.items() if key not in OF_ONE_START}
    return replace(spec, host_id=HostId(""), env=env)


def _core_of(path: str, argument: str | None) -> tuple[CoreRule, ...]:
    """How a program named by its path can show: itself, or as a script under the interpreters agents use for one."""
    if not path:
        return ()
    name = path.rsplit("/", 1)[-1]
    own = () if is_interpreter(name.encode()) else (CoreRule(name, None, argument),)
    return (*own, *(CoreRule(program, path, argument) for program in ("node", "sh", "bash")))
