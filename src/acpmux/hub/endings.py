"""The end of every agent at once: a person shuts the daemon down with them (SPEC section 6, row 6)."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from acpmux.errors import AcpmuxError
from acpmux.hub.actor import Actor
from acpmux.model.session import State
from acpmux.ports import HostLauncher
from acpmux.rules import messages as m

MARKS_AT_ONCE = 5000  # each is an argument of the program that ends

log = logging.getLogger(__name__)


async def end_agents(actors: Sequence[Actor], launcher: HostLauncher, all_: bool) -> list[dict[str, Any]]:
    """Ends every harness, with `all_` also what left its tree. Returns what could not be ended, and why."""
    awake = [actor for actor in actors if actor.session.live.pid is not None or actor.session.state is State.WAKING]
    answers = await asyncio.gather(*(_end(actor, all_) for actor in awake), return_exceptions=True)
    left: list[dict[str, Any]] = []
    for actor, answer in zip(awake, answers, strict=True):
        if isinstance(answer, AcpmuxError):
            row = {"sessionId": actor.session_id, "name": actor.session.checkpoint.name, "reason": answer.message}
            left.append(row | {"blockers": answer.blockers})
        elif isinstance(answer, BaseException):
            raise answer
    if all_:
        await _end_left(actors, launcher)
    return left


async def _end(actor: Actor, all_: bool) -> None:
    await actor.ask(lambda token: m.StopAsked(token, all=all_))


async def _end_left(actors: Sequence[Actor], launcher: HostLauncher) -> None:
    """Ends what runs on of sessions that sleep: what left its tree, and what outlived an agent that crashed."""
    marks = [mark for actor in actors for mark in await actor.effects.marks()]
    for first in range(0, len(marks), MARKS_AT_ONCE):
        for pid, _, _, how in await launcher.end_left(marks[first : first + MARKS_AT_ONCE]):
            log.info("ended what was left running pid=%s outcome=%s", pid, how)
