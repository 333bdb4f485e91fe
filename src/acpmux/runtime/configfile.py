"""`config.toml` and `--mcp-config`, parsed once and checked whole.

An error names the file, the key and what is expected.
"""

import difflib
import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import astuple
from pathlib import Path
from typing import Any

from acpmux.census.identity import is_interpreter
from acpmux.census.verdict import is_launcher
from acpmux.durations import parse_duration
from acpmux.errors import ConfigFault
from acpmux.model.config import AgentConfig, Config, IdleConfig, StartConfig
from acpmux.model.session import McpServer
from acpmux.paths import read_plain
from acpmux.untyped import as_list, as_object

MAX_BYTES = 1024 * 1024
POOL_LIMIT = 8  # each holds 200 to 700 MB

_TOP = ("default_agent", "idle", "start", "agents", "mcp_servers", "web")
_IDLE = ("after", "attached", "grace", "park")
_START = ("initialize", "session")
_SECTIONS = {"idle": _IDLE, "start": _START}  # each in the order of its dataclass
_AGENT = ("command", "env", "idle_after", "hosting", "pool", "core", "mcp_servers", "profile")
_LAUNCHERS = frozenset({"npm", "pnpm", "yarn", "uv", "pipx", "env", "nohup", "setsid", "timeout", "sudo", "xargs"})
_WEB = ("listen", "always")
_SERVER = ("command", "args", "env")


def load(path: Path) -> Config:
    """The config of this file; without one, the defaults. Raises: ConfigFault."""
    try:
        data = read_plain(path, MAX_BYTES)
    except FileNotFoundError:
        return Config()
    except OSError as error:
        raise ConfigFault(f"{path} can't be read: {error.strerror}") from None
    return parse(data, str(path))


def in_force(path: Path) -> list[tuple[str, Any, str]]:
    """(key, value, source) of what a daemon starting now takes, source "file" or "default". Raises: ConfigFault.

    Values are as config.toml has them. Of an environment only the names: its values may be secrets.
    """
    load(path)
    told = dict(_leaves(tomllib.loads(path.read_text("utf-8")), "")) if path.exists() else {}
    defaults = {"default_agent": None} | {
        f"{section}.{key}": value if isinstance(value, bool) else f"{value:g}s"
        for section, values in (("idle", IdleConfig()), ("start", StartConfig()))
        for key, value in zip(_SECTIONS[section], astuple(values), strict=True)
    }
    return [
        (key, told.get(key, value), "file" if key in told else "default") for key, value in (defaults | told).items()
    ]


def _leaves(table: Mapping[str, Any], place: str) -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if not isinstance(value, dict):
            yield place + name, value
        elif name == "env":
            yield place + name, list(as_object(value))
        else:
            yield from _leaves(as_object(value), f"{place}{name}.")


def parse(data: bytes, where: str) -> Config:
    """Raises: ConfigFault."""
    if len(data) > MAX_BYTES:
        raise ConfigFault(f"{where} is over {MAX_BYTES} bytes")
    try:
        told = tomllib.loads(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ConfigFault(f"{where} is not UTF-8 (byte {error.start})") from None
    except (ValueError, RecursionError) as error:
        raise ConfigFault(f"{where} is not valid TOML: {error}") from None
    top = _Table(told, where, "", _TOP)
    _check_web(top.table("web", _WEB))
    return Config(
        default_agent=top.text("default_agent"),
        idle=_idle(top.table("idle", _IDLE)),
        start=_start(top.table("start", _START)),
        agents=tuple(_agent(name, top.table("agents").table(name, _AGENT)) for name in top.table("agents").names()),
        mcp_servers=_servers(top.table("mcp_servers")),
    )


def parse_mcp_json(text: str, where: str) -> tuple[McpServer, ...]:
    """The servers of a file in the form of `.mcp.json`. Raises: ConfigFault."""
    if len(text) > MAX_BYTES:
        raise ConfigFault(f"{where} is over {MAX_BYTES} bytes")
    try:
        told = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigFault(f"{where} is not valid JSON: {error}") from None
    if not isinstance(as_object(told).get("mcpServers"), dict):
        raise ConfigFault(f'{where} must hold {{"mcpServers": {{NAME: {{"command": ..., "args": [...]}}}}}}')
    servers = _Table(told, where, "", None).table("mcpServers")
    return _servers(servers)


class _Table:
    """One table, its place in the file, and the keys it may have."""

    def __init__(self, told: Mapping[str, Any], where: str, place: str, known: tuple[str, ...] | None) -> None:
        self._told = told
        self._where = where
        self._place = place
        for key in told if known is not None else ():
            if key not in (known or ()):
                near = difflib.get_close_matches(key, known or (), 1)
                hint = f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(known or ())}"
                raise ConfigFault(f"{where}: unknown key {self._path(key)!r}{hint}")

    def _path(self, key: str) -> str:
        return f"{self._place}.{key}" if self._place else key

    def names(self) -> tuple[str, ...]:
        return tuple(self._told)

    def fault(self, key: str, expected: str) -> ConfigFault:
        return ConfigFault(f"{self._where}: {self._path(key)} must be {expected}")

    def _check(self, key: str, *texts: str) -> None:
        if not all(_fits(text) for text in texts):
            raise self.fault(key, "text without NUL and without halves of characters")

    def table(self, key: str, known: tuple[str, ...] | None = None) -> "_Table":
        value = self._told.get(key, {})
        if not isinstance(value, dict):
            raise self.fault(key, "a table")
        return _Table(as_object(value), self._where, self._path(key), known)

    def text(self, key: str) -> str | None:
        value = self._told.get(key)
        if value is not None and (not isinstance(value, str) or not value):
            raise self.fault(key, "a text")
        self._check(key, value or "")
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self._told.get(key, default)
        if not isinstance(value, bool):
            raise self.fault(key, "true or false")
        return value

    def number(self, key: str) -> int:
        value = self._told.get(key, 0)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.fault(key, "a whole number")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        value = self._told.get(key, [])
        found = as_list(value)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in found):
            raise self.fault(key, "a list of texts")
        self._check(key, *found)
        return tuple(found)

    def pairs(self, key: str) -> tuple[tuple[str, str], ...]:
        value = self._told.get(key, {})
        found = as_object(value)
        if not isinstance(value, dict) or not all(isinstance(item, str) for item in found.values()):
            raise self.fault(key, "a table of texts")
        self._check(key, *found, *found.values())
        if any(not name or "=" in name for name in found):
            raise self.fault(key, "a table of variables, whose names are not empty and hold no '='")
        return tuple(found.items())

    def seconds(self, key: str, default: float | None, also: str | None = None) -> float | None:
        """A duration; `also` is one more word that stands for None."""
        value = self._told.get(key)
        if value is None:
            return default
        if value == also:
            return None
        try:
            return parse_duration(value if isinstance(value, str) else repr(value))
        except ValueError as error:
            raise ConfigFault(f"{self._where}: {self._path(key)}: {error}") from None


def _fits(text: str) -> bool:
    """Whether a program can be given this text: it ends at a NUL (execve(2)), and half a surrogate pair is no UTF-8."""
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


def _check_web(table: _Table) -> None:
    table.text("listen")
    table.flag("always", False)


def _idle(table: _Table) -> IdleConfig:
    grace = table.seconds("grace", 5.0)
    if grace is None:
        raise table.fault("grace", "a duration, not never")
    return IdleConfig(
        after_s=table.seconds("after", 120.0),
        attached_s=table.seconds("attached", 1800.0, "always"),
        grace_s=grace,
        park=table.flag("park", True),
    )


def _start(table: _Table) -> StartConfig:
    defaults = StartConfig()
    initialize, session = (
        table.seconds("initialize", defaults.initialize_s),
        table.seconds("session", defaults.session_s),
    )
    if initialize is None or session is None:
        raise table.fault("initialize" if initialize is None else "session", "a duration, not never")
    return StartConfig(initialize, session)


def _agent(name: str, table: _Table) -> AgentConfig:
    hosting = table.text("hosting") or "hosted"
    if hosting not in ("hosted", "direct"):
        raise table.fault("hosting", '"hosted" or "direct"')
    pool = table.number("pool")
    if not 0 <= pool <= POOL_LIMIT:
        raise table.fault("pool", f"a number of hosts from 0 to {POOL_LIMIT}")
    if pool and any(word.startswith("--mcp-config") for word in table.texts("command")):
        raise table.fault("pool", "0 where the command itself names MCP servers by --mcp-config")
    after = table.seconds("idle_after", 0.0)
    return AgentConfig(
        name=name,
        command=table.texts("command"),
        env=table.pairs("env"),
        idle_after_s=after or None,
        pinned=after is None,
        core=_core(table),
        mcp_servers=_servers(table.table("mcp_servers")),
        profile=table.text("profile"),
        direct=hosting == "direct",
        pool=pool,
    )


def _core(table: _Table) -> tuple[str, ...]:
    """Programs of the agent's own. What runs anybody's work can't be one: a retirement would end that work."""
    core = table.texts("core")
    for program in core:
        words = (program.encode(),)
        if not program or "/" in program or is_interpreter(*words) or is_launcher(words) or program in _LAUNCHERS:
            expected = "base names of programs of the agent's own, and no interpreter, shell or launcher"
            raise table.fault("core", f"{expected} ({program!r})")
    return core


def _servers(table: _Table) -> tuple[McpServer, ...]:
    return tuple(_server(name, table) for name in table.names())


def _server(name: str, servers: _Table) -> McpServer:
    if not name or not _fits(name):
        raise servers.fault(ascii(name), "named with text that is not empty, and without NUL or halves of characters")
    entry = servers.table(name)
    if "url" in entry.names() or entry.text("type") not in (None, "stdio"):
        raise servers.fault(name, "a server over stdio (a command); servers by URL are not there yet")
    table = servers.table(name, (*_SERVER, "type"))
    command = table.text("command")
    if command is None:
        raise table.fault("command", "the server's program")
    return McpServer(name, command, table.texts("args"), table.pairs("env"))
