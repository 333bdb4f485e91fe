"""A session as clients see it: the row of `ls --json`, the processes of `ps --json`."""

from typing import Any

from acpmux.hub.actor import Actor
from acpmux.model.session import State
from acpmux.rules.idle import idle_after_s
from acpmux.wire.mux import rfc3339


def status(actor: Actor) -> str:
    """The contract's word: a running turn with an ask is `waiting`."""
    checkpoint = actor.session.checkpoint
    return "waiting" if checkpoint.state is State.RUNNING and checkpoint.asks else checkpoint.state.value


def deadline_ms(actor: Actor) -> int | None:
    """When it is due to sleep, as wall-clock milliseconds; None while something holds it or it sleeps."""
    live = actor.session.live
    if live.armed_at is None or live.idle_from is None:
        return None
    return actor.clock.wall_ms() + round((live.armed_at - actor.clock.now()) * 1000)


def row(actor: Actor) -> dict[str, Any]:
    """One row of `ls --json`."""
    checkpoint, live = actor.session.checkpoint, actor.session.live
    deadline = deadline_ms(actor)
    return {
        "sessionId": checkpoint.session_id,
        "name": checkpoint.name,
        "agent": checkpoint.agent,
        "cwd": checkpoint.cwd,
        "status": status(actor),
        "pid": live.pid,
        "hostPid": live.host_pid,
        "queued": len(checkpoint.queue),
        "asks": len(checkpoint.asks),
        "lastActiveAt": rfc3339(max(checkpoint.last_active_at_ms, live.touched_at_ms)),
        "idleDeadline": None if deadline is None else rfc3339(deadline),
        "title": checkpoint.title,
        "createdAt": rfc3339(checkpoint.created_at_ms),
        "policy": checkpoint.policy.value,
        "idleAfter": _duration(idle_after_s(actor.session)),
        "lastError": checkpoint.last_error,
        "agentSessionId": checkpoint.agent_session_id,
        "mode": checkpoint.mode,
        "lastSeq": actor.seq,
        "clients": len(live.clients),
        "refusals": checkpoint.refusals,
        "problems": list(live.problems),
    }


def _duration(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds:g}s"


def processes(actor: Actor, header: dict[str, Any]) -> dict[str, Any]:
    """`ps --json` from a host's census; without a harness only what left the tree is there to list."""
    more = header.get("more") or 0
    return {
        "sessionId": actor.session_id,
        "whole": bool(header.get("whole")) and not more,
        "unknown": header.get("unknown") or (f"{more} more processes run than are shown" if more else None),
        "processes": [_process(told) for told in header.get("processes") or ()],
    }


def _process(told: dict[str, Any]) -> dict[str, Any]:
    started = told.pop("startedAtMs", None)
    return told | {"startedAt": None if started is None else rfc3339(started)}
