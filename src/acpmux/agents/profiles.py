"""The profiles, read from `data/*.toml`; and whether an agent is installed."""

import difflib
import functools
import os
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

from acpmux.errors import UnknownAgent
from acpmux.model.config import Profile
from acpmux.model.process import CoreRule

_DATA = Path(__file__).parent / "data"
_PYTHON = "{python}"  # in a command: the interpreter that runs acpmux


@functools.cache
def profiles() -> dict[str, Profile]:
    """Every built-in profile by name, in the order of names."""
    return {path.stem: parse(path.stem, path.read_text("utf-8")) for path in sorted(_DATA.glob("*.toml"))}


def find(name: str) -> Profile:
    """The profile of this name or alias, in any case of letters. Raises: UnknownAgent, with near names."""
    by_name = _by_name()
    found = by_name.get(name.lower())
    if found is not None:
        return found
    near = difflib.get_close_matches(name.lower()[:60], by_name, 2)
    hint = f"Did you mean {' or '.join(near)}? " if near else ""
    raise UnknownAgent(
        f"no agent is called {name[:60]!r}. {hint}"
        f"See: acpmux agents, or add [agents.{name[:60]}] with a command to config.toml"
    )


def installed(profile: Profile, path: str) -> str | None:
    """Where the agent's program is, None when it is not on this PATH, or when it is another profile's program.

    Two packages install a `codex-acp`: the one whose package folder the file lies in has it. A file outside of
    any known package is taken at its name.
    """
    program = shutil.which(profile.command[0], path=path)
    if program is None:
        return None
    real = os.path.realpath(program)
    rivals = (rival for rival in profiles().values() if rival.package and rival.package != profile.package)
    return None if any(f"/node_modules/{rival.package}/" in real for rival in rivals) else program


def parse(name: str, text: str) -> Profile:
    """One profile from its TOML. Raises: TOMLDecodeError, KeyError or TypeError for one that does not hold."""
    told: dict[str, Any] = tomllib.loads(text)
    command = tuple(sys.executable if word == _PYTHON else word for word in told.pop("command"))
    anatomy = tuple(CoreRule(**rule) for rule in told.pop("anatomy", ()))
    env = tuple(told.pop("env", {}).items())
    told["core_env"] = tuple(told.get("core_env", {}).items())
    for key in ("aliases", "unset", "configs"):
        told[key] = tuple(told.get(key, ()))
    return Profile(name=name, command=command, env=env, anatomy=anatomy, **told)


@functools.cache
def _by_name() -> dict[str, Profile]:
    """Names and aliases; a name wins over another profile's alias."""
    aliases = {alias: profile for profile in profiles().values() for alias in profile.aliases}
    return {**aliases, **profiles()}
