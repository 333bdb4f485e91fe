"""The MCP servers that agents' own configurations name, as each agent reads them (SPEC section 3)."""

import os
import re
from collections.abc import Callable, Mapping
from typing import Any, cast

from acpmux.census.sources import (
    Found,
    Named,
    Reading,
    SourceError,
    add_merged,
    between,
    expanded,
    named,
    parse_json,
    parse_toml,
    project_root,
)
from acpmux.model.process import Launching

_CLAUDE_VAR = re.compile(r"\$\{([^}]+)\}")
_GEMINI_VAR = re.compile(r"\$(?:(\w+)|\{([^}]+)\})")
_OPENCODE_VAR = re.compile(r"\{(env|file):([^}]*)\}")


def read(launching: Launching) -> Found:
    """What the configurations of this launch name; `configs` are those of `READERS`."""
    reading = Reading(launching)
    for kind in launching.configs:
        READERS[kind](reading)
    return reading.found()


# ------------------------------------------------------------ Claude Code


def _claude(reading: Reading) -> None:
    """User, project and local servers, then those of `--mcp-config`; with `--strict-mcp-config` only the last."""
    given, strict = _claude_arguments(reading.at.command)
    if not strict:
        home = reading.at.env.get("CLAUDE_CONFIG_DIR") or reading.home
        path = os.path.join(home, ".claude.json")
        user = reading.file(path, parse_json)
        reading.add(path, user.get("mcpServers"), _claude_server)
        project = os.path.join(reading.at.cwd, ".mcp.json")
        reading.add(project, reading.file(project, parse_json).get("mcpServers"), _claude_server)
        projects = user.get("projects")
        for folder in dict.fromkeys((os.path.realpath(reading.at.cwd), reading.at.cwd)):
            local = cast("dict[str, Any]", projects).get(folder) if isinstance(projects, dict) else None
            if isinstance(local, dict):
                servers = cast("dict[str, Any]", local).get("mcpServers")
                reading.add(f"{path} projects[{folder}]", servers, _claude_server)
    for number, text in enumerate(given, 1):
        inline = text.lstrip().startswith("{")
        where = f"--mcp-config {number}" if inline else os.path.join(reading.at.cwd, text)
        told = reading.text(text, where) if inline else reading.file(text, parse_json, wanted=True)
        reading.add(where, told.get("mcpServers"), _claude_server)


def _claude_arguments(command: tuple[str, ...]) -> tuple[list[str], bool]:
    """The values of every `--mcp-config` (each takes all words up to the next option), and whether it is strict."""
    given: list[str] = []
    strict = taking = False
    for word in command[1:]:
        if word.startswith("--mcp-config="):
            given.append(word.partition("=")[2])
        elif word.startswith("-") and not word.startswith("-{"):
            taking = word == "--mcp-config"
            strict = strict or word == "--strict-mcp-config"
        elif taking:
            given.append(word)
    return given, strict


def _claude_server(reading: Reading, name: str, told: dict[str, Any]) -> Named | None:
    if told.get("type", "stdio") != "stdio" or (told.get("url") and not told.get("command")):
        return None  # over the network: no process
    told = expanded(told, lambda text: _claude_text(text, reading.at.env))
    return named(reading, name, told.get("command"), told.get("args", []), told.get("env") or {})


def _claude_text(text: str, env: Mapping[str, str]) -> str:
    """`${VAR}` and `${VAR:-default}`; of nested ones Claude Code replaces up to the first `}` and goes on behind it."""

    def value(match: re.Match[str]) -> str:
        name, mark, default = match[1].partition(":-")
        if name in env:
            return env[name]
        if not mark:
            raise SourceError(f"${{{name[:60]}}} is not set")
        return default

    return _CLAUDE_VAR.sub(value, text)


# ------------------------------------------------------------ Codex


def _codex(reading: Reading) -> None:
    """The system's, the user's, and in a trusted project the project's own, from its root down to the folder."""
    home = reading.at.env.get("CODEX_HOME") or os.path.join(reading.home, ".codex")
    paths = ["/etc/codex/config.toml", os.path.join(home, "config.toml")]
    layers = [(path, reading.file(path, parse_toml)) for path in paths]
    root = project_root(reading.at.cwd)
    projects = layers[-1][1].get("projects")
    if any(_trusted(projects, folder) for folder in (reading.at.cwd, os.path.realpath(reading.at.cwd), root)):
        folders = between(root, reading.at.cwd)
        layers += [(path, reading.file(path, parse_toml)) for path in (f"{f}/.codex/config.toml" for f in folders)]
    add_merged(reading, [(path, told.get("mcp_servers")) for path, told in layers], _codex_server)


def _trusted(projects: object, folder: str) -> bool:
    if not isinstance(projects, dict):
        return False
    told = cast("dict[str, Any]", projects).get(folder)
    return isinstance(told, dict) and cast("dict[str, Any]", told).get("trust_level") == "trusted"


def _codex_server(reading: Reading, name: str, told: dict[str, Any]) -> Named | None:
    if told.get("enabled") is False or ("url" in told and "command" not in told):
        return None
    return named(reading, name, told.get("command"), told.get("args", []), told.get("env", {}), told.get("cwd"))


# ------------------------------------------------------------ Gemini


def _gemini(reading: Reading) -> None:
    """System defaults, user, project and system settings; of one name the last holds."""
    env = reading.at.env
    paths = (
        env.get("GEMINI_CLI_SYSTEM_DEFAULTS_PATH") or "/etc/gemini-cli/system-defaults.json",
        os.path.join(env.get("GEMINI_CLI_HOME") or reading.home, ".gemini/settings.json"),
        os.path.join(reading.at.cwd, ".gemini/settings.json"),
        env.get("GEMINI_CLI_SYSTEM_SETTINGS_PATH") or "/etc/gemini-cli/settings.json",
    )
    for path in dict.fromkeys(paths):
        reading.add(path, reading.file(path, parse_json).get("mcpServers"), _gemini_server)


def _gemini_server(reading: Reading, name: str, told: dict[str, Any]) -> Named | None:
    if "command" not in told:
        return None
    told = expanded(told, lambda text: _gemini_text(text, reading.at.env))
    return named(reading, name, told.get("command"), told.get("args", []), told.get("env") or {}, told.get("cwd"))


def _gemini_text(text: str, env: Mapping[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        name, mark, default = (match[1] or match[2]).partition(":-")
        if name in env:
            return env[name]
        if not mark:
            raise SourceError(f"${name[:60]} is not set")
        return default

    return _GEMINI_VAR.sub(value, text)


# ------------------------------------------------------------ OpenCode


def _opencode(reading: Reading) -> None:
    """Global, `OPENCODE_CONFIG`, the project's from its root down, `.opencode`, then `OPENCODE_CONFIG_CONTENT`."""
    env = reading.at.env
    home = os.path.join(env.get("XDG_CONFIG_HOME") or os.path.join(reading.home, ".config"), "opencode")
    folders = between(project_root(reading.at.cwd), reading.at.cwd)
    names = ("opencode.json", "opencode.jsonc")
    paths = [os.path.join(home, name) for name in ("config.json", *names)]
    paths += [env["OPENCODE_CONFIG"]] if env.get("OPENCODE_CONFIG") else []
    paths += [os.path.join(folder, name) for folder in folders for name in names]
    paths += [os.path.join(folder, ".opencode", name) for folder in (reading.home, *folders) for name in names]
    paths += [os.path.join(env["OPENCODE_CONFIG_DIR"], name) for name in names if env.get("OPENCODE_CONFIG_DIR")]
    layers = [(path, reading.file(path, parse_json)) for path in dict.fromkeys(paths)]
    if env.get("OPENCODE_CONFIG_CONTENT"):
        where = "OPENCODE_CONFIG_CONTENT"
        layers.append((where, reading.text(env[where], where)))
    add_merged(reading, [(path, told.get("mcp")) for path, told in layers], _opencode_server)


def _opencode_server(reading: Reading, name: str, told: dict[str, Any]) -> Named | None:
    if told.get("enabled") is False or told.get("type") != "local":
        return None
    told = expanded(told, lambda text: _opencode_text(text, reading.at.env))
    command = told.get("command")
    words = cast("list[object]", command) if isinstance(command, list) else []
    if not words:
        raise SourceError("its command is not a list of texts")
    return named(reading, name, words[0], words[1:], told.get("environment") or {}, told.get("cwd"))


def _opencode_text(text: str, env: Mapping[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        if match[1] == "file":
            raise SourceError("it takes a part of itself from a file")
        if match[2] not in env:
            raise SourceError(f"{match[0][:60]} is not set")
        return env[match[2]]

    return _OPENCODE_VAR.sub(value, text)


READERS: dict[str, Callable[[Reading], None]] = {
    "claude": _claude,
    "codex": _codex,
    "gemini": _gemini,
    "opencode": _opencode,
}
