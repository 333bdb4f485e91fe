"""`acpmux why`: what holds a session awake, or how it came to sleep, as a short story from its records."""

from collections.abc import Callable
from typing import Any

from acpmux.hub.actor import Actor
from acpmux.hub.view import deadline_ms, status
from acpmux.model.record import Kind, Record, Stored
from acpmux.model.session import Hold, State
from acpmux.rules import idle
from acpmux.untyped import parse_json
from acpmux.wire.mux import rfc3339

STORY_RECORDS = 200  # read for it: many refusals in a row are one step
STORY_STEPS = 12  # what fits on a screen beside the rest

_TOLD = (
    Kind.CREATED,
    Kind.PROMPTED,
    Kind.TURN_ENDED,
    Kind.TURN_FAILED,
    Kind.ASK_OPENED,
    Kind.ASK_RESOLVED,
    Kind.WOKE,
    Kind.WAKE_FAILED,
    Kind.HIBERNATED,
    Kind.RETIRE_REFUSED,
    Kind.EXITED,
    Kind.STOPPED,
    Kind.CLOSED,
)


async def why(actor: Actor) -> dict[str, Any]:
    """The value of `why --json`."""
    session, now = actor.session, actor.clock.now()
    checkpoint = session.checkpoint
    awake = checkpoint.state in (State.READY, State.RUNNING)
    holds = [_hold(actor, hold) for hold in idle.holds(session, now)] if awake else []
    refusal = checkpoint.last_refusal
    if awake and session.live.refused and refusal is not None:
        kind = "census" if refusal.blockers else "unknown"
        who = refusal.blockers or ((None, None),)
        holds += [
            {"kind": kind, "detail": refusal.reason, "pid": pid, "command": command, "until": None}
            for pid, command in who
        ]
    deadline = deadline_ms(actor)
    rows = await actor.log.read_kinds(actor.session_id, _TOLD, STORY_RECORDS)
    return {
        "sessionId": actor.session_id,
        "status": status(actor),
        "holds": holds,
        "idleDeadline": None if deadline is None else rfc3339(deadline),
        "refusals": checkpoint.refusals,
        "lastRefusal": None
        if refusal is None
        else {
            "at": rfc3339(refusal.at_ms),
            "reason": refusal.reason,
            "blockers": [{"pid": pid, "command": command} for pid, command in refusal.blockers],
        },
        "story": _story(rows),
        "lastError": checkpoint.last_error,
    }


def _story(rows: list[Stored]) -> list[dict[str, Any]]:
    """The last steps, a row of equal ones as one, told by its last."""
    story: list[tuple[int, str, int]] = []
    for row in rows:
        text = tell(row.record)
        times = story[-1][2] + 1 if story and story[-1][1] == text else 1
        story[-1:] = [] if times > 1 else story[-1:]
        story.append((row.record.at_ms, text, times))
    return [
        {"at": rfc3339(at_ms), "text": text if times == 1 else f"{text} ({times} times)"}
        for at_ms, text, times in story[-STORY_STEPS:]
    ]


def _hold(actor: Actor, hold: Hold) -> dict[str, Any]:
    until = (
        None if hold.until is None else rfc3339(actor.clock.wall_ms() + round((hold.until - actor.clock.now()) * 1000))
    )
    return {
        "kind": hold.kind,
        "detail": hold.detail,
        "pid": hold.pid,
        "command": hold.command,
        "until": until,
    }


def tell(record: Record) -> str:
    """One record as one sentence. No prompt text: a story may be pasted into a report."""
    body = parse_json(record.body)
    return _SENTENCES[record.kind](body)


def _refused(body: dict[str, Any]) -> str:
    if not body["blockers"]:
        return f"it stayed awake: {body['reason']}"
    pid, command, reason = body["blockers"][0]
    more = f", and {len(body['blockers']) - 1} more" if len(body["blockers"]) > 1 else ""
    return f"it stayed awake for pid {pid}, {command} ({reason}){more}"


def _hibernated(body: dict[str, Any]) -> str:
    pids = ", ".join(str(row[0]) for row in body["ended"][:8])
    freed = f", {body['freedBytes'] / 1e6:.0f} MB freed" if body["freedBytes"] else ""
    left = (
        f"; left running: {', '.join(f'{row[2 - 1]} (pid {row[0]})' for row in body['left'])}" if body["left"] else ""
    )
    return f"it went to sleep: {len(body['ended'])} processes ended (pids {pids}) in {body['tookMs']} ms{freed}{left}"


def _stopped(body: dict[str, Any]) -> str:
    left = f"; left running: {', '.join(f'{row[1]} (pid {row[0]})' for row in body['left'])}" if body["left"] else ""
    return f"it was stopped: {len(body['ended'])} processes ended{left}"


def _woke(body: dict[str, Any]) -> str:
    how = {"new": "began", "rehydrated": "began afresh with the stored transcript"}.get(
        body["how"], f"woke by {body['how']}"
    )
    servers = [name if source == "acp" else f"{name} ({source})" for name, source in body.get("servers", ())]
    named = f"; its MCP servers: {', '.join(servers)}" if servers else ""
    problems = "".join(f"; {problem}" for problem in body["problems"])
    return f"it {how} in {body['tookMs']} ms (pid {body['pid']}){named}{problems}"


_SENTENCES: dict[Kind, Callable[[dict[str, Any]], str]] = {
    Kind.CREATED: lambda b: f"it was created for {b['agent']} in {b['cwd']}",
    Kind.PROMPTED: lambda b: f"a prompt came in ({b['promptId']})",
    Kind.TURN_ENDED: lambda b: f"the turn ended: {b['stopReason']}",
    Kind.TURN_FAILED: lambda b: f"the turn failed: {b['message']}",
    Kind.ASK_OPENED: lambda b: f"the agent asked: {b['title']}",
    Kind.ASK_RESOLVED: lambda b: f"the question was {b['outcome']} by {b['by']}",
    Kind.WOKE: _woke,
    Kind.WAKE_FAILED: lambda b: f"it could not wake: {b['message']}",
    Kind.HIBERNATED: _hibernated,
    Kind.RETIRE_REFUSED: _refused,
    Kind.EXITED: lambda b: b["message"],
    Kind.STOPPED: _stopped,
    Kind.CLOSED: lambda b: "it was closed",
}
