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


@functools.cache
def profiles() -> dict[str, Profile]:
    """Every built-in profile by name."""
    found = [_profile(path.stem, tomllib.loads(path.read_text("utf-8"))) for path in sorted(_DATA.glob("*.toml"))]
    return {profile.name: profile for profile in found}


def find(name: str) -> Profile:
    """The profile of this name or alias. Raises: UnknownAgent, with near names."""
    known = profiles()
    if name in known:
        return known[name]
    for profile in known.values():
        if name in profile.aliases:
            return profile
    near = difflib.get_close_matches(name, known, 2)
    hint = f"Did you mean {' or '.join(near)}? " if near else ""
    raise UnknownAgent(
        f"no agent is called {name[:60]!r}. {hint}See: acpmux agents, "
        f"or add [agents.{name[:60]}] with a command to config.toml"
    )


def installed(profile: Profile, path: str) -> str | None:
    """Where the agent's program is, None when it is not on this PATH."""
    program = profile.command[0]
    return program if os.path.isabs(program) and os.access(program, os.X_OK) else shutil.which(program, path=path)


def _profile(name: str, told: dict[str, Any]) -> Profile:
    command = tuple(sys.executable if word == "{python}" else word for word in told.pop("command"))
    anatomy = tuple(CoreRule(**rule) for rule in told.pop("anatomy", ()))
    env = tuple(told.pop("env", {}).items())
    for key in ("aliases", "unset"):
        told[key] = tuple(told.get(key, ()))
    return Profile(name=name, command=command, env=env, anatomy=anatomy, **told)
