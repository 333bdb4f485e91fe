"""Records to state: what a session is, is what its records say, one after the other.

`step` builds the new state with this very function, so a replay can't differ from what was lived.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from acpmux.model.ids import AgentSessionId, AskId, HostId, PromptId
from acpmux.model.record import Kind, Record
from acpmux.model.session import (
    Ask,
    Checkpoint,
    ConfigOption,
    OnPermission,
    Option,
    Policy,
    Prompt,
    Refusal,
    State,
    Turn,
)
from acpmux.untyped import as_list, as_object, parse_json

# the only updates that change a checkpoint; any other costs one substring search each
_TELLING = (b"current_mode_update", b"session_info_update", b"usage_update", b"config_option_update")

_USES = frozenset({Kind.CREATED, Kind.PROMPTED, Kind.TURN_ENDED, Kind.TURN_FAILED, Kind.ASK_RESOLVED, Kind.SETTING})


def fold(checkpoint: Checkpoint, records: Iterable[Record]) -> Checkpoint:
    """The state after these records."""
    for record in records:
        checkpoint = apply(checkpoint, record)
    return checkpoint


def apply(checkpoint: Checkpoint, record: Record) -> Checkpoint:
    """The state after one more record."""
    if record.kind is Kind.UPDATE:
        return _update(checkpoint, record.body)
    if record.kind in _USES:
        checkpoint = replace(checkpoint, last_active_at_ms=record.at_ms)
    rule = _RULES.get(record.kind)
    return rule(checkpoint, record, parse_json(record.body)) if rule else checkpoint


def with_tail(key: str, tail: bytes, /, **head: Any) -> bytes:
    """A JSON object whose last member holds `tail` byte for byte; `raw_tail` gives it back."""
    start = json.dumps(head, separators=(",", ":")).encode()[:-1]
    return start + (b"," if head else b"") + json.dumps(key).encode() + b":" + tail + b"}"


def raw_tail(key: str, body: bytes) -> bytes:
    """The untouched JSON of the last member of a body made by `with_tail`.

    The first `"key":` is the member itself: inside a JSON text the second quote would follow a backslash.
    """
    mark = json.dumps(key).encode() + b":"
    return body[body.index(mark) + len(mark) : -1]


def _update(checkpoint: Checkpoint, body: bytes) -> Checkpoint:
    if not any(word in body for word in _TELLING):
        return checkpoint
    try:
        update = parse_json(body)["update"]
        kind = update["sessionUpdate"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return checkpoint
    if kind == "current_mode_update" and isinstance(update.get("currentModeId"), str):
        return replace(checkpoint, mode=update["currentModeId"])
    if kind == "session_info_update" and "title" in update:
        title = update["title"]
        return replace(checkpoint, title=title[:500] if isinstance(title, str) else None)
    if kind == "usage_update":
        return replace(
            checkpoint, usage=_dumps({key: update[key] for key in ("used", "size", "cost") if key in update})
        )
    if kind == "config_option_update":
        return with_config_options(checkpoint, as_list(update.get("configOptions")))
    return checkpoint


def with_config_options(checkpoint: Checkpoint, listed: list[Any]) -> Checkpoint:
    """The whole list as the harness now shows it; the values of options a person chose follow it."""
    current = {
        item["id"]: item["currentValue"]
        for item in map(as_object, listed)
        if isinstance(item.get("id"), str) and "currentValue" in item
    }
    options = tuple(
        replace(option, value=_dumps(current[option.config_id])) if option.config_id in current else option
        for option in checkpoint.options
    )
    modes = (item.get("currentValue") for item in map(as_object, listed) if item.get("category") == "mode")
    mode = next((value for value in modes if isinstance(value, str)), checkpoint.mode)
    return replace(checkpoint, config_options=_dumps(listed), options=options, mode=mode)


def _prompted(checkpoint: Checkpoint, record: Record, body: dict[str, Any]) -> Checkpoint:
    prompt = Prompt(
        PromptId(body["promptId"]),
        raw_tail("prompt", record.body),
        record.at_ms,
        OnPermission(body.get("onPermission", "wait")),
    )
    return replace(checkpoint, queue=(*checkpoint.queue, prompt))


def _waking(checkpoint: Checkpoint, record: Record, body: dict[str, Any]) -> Checkpoint:
    return replace(checkpoint, state=State.WAKING)


def _woke(checkpoint: Checkpoint, record: Record, body: dict[str, Any]) -> Checkpoint:
    woken = replace(
        checkpoint,
        state=State.READY,
        host_id=HostId(body["hostId"]),
        agent_session_id=AgentSessionId(body["agentSessionId"]),
        mode=body["mode"],
        options=tuple(ConfigOption(key, _dumps(value)) for key, value in body["options"]),
        modes=_dumps(body["modes"]) if body["modes"] is not None else None,
        config_options=_dumps(body["configOptions"]) if body["configOptions"] is not None else None,
        rehydrate=checkpoint.rehydrate or body["how"] == "rehydrated",
        last_error=None,
    )
    # an agent session begun afresh has seen no prompt yet, so it can't be loaded either
    return woken if body["how"] in ("resume", "load") else replace(woken, prompted=False)


def _wake_failed(checkpoint: Checkpoint, record: Record, body: dict[str, Any]) -> Checkpoint:
    return replace(_asleep(checkpoint), last_error=body["message"])


def _turn_started(checkpoint: Checkpoint, record: Record, body: dict[str, Any]) -> Checkpoint:
    turn = Turn(checkpoint.queue[0], rehydrate=bool(body.get("rehydrate")))
    return replace(
        checkpoint, state=State.RUNNING, turn=turn, queue=checkpoint.queue[1:], prompted=True, rehydrate=False
    )


def _turn_over(checkpoint: Checkpoint, record: Record, body: dict[str, Any]) -> Checkpoint:
    prompt_id = body["promptId"]
    if checkpoint.turn is None or checkpoint.turn.prompt.prompt_id != prompt_id:
        return replace(checkpoint, queue=tuple(p for p in checkpoint.queue if p.prompt_id != prompt_id))
    state = State.READY if checkpoint.state is State.RUNNING else checkpoint.state
    return replace(checkpoint, state=state, turn=None)


def _cancelled(checkpoint: Checkpoint, record: Record, body: dict[str, Any]) -> Checkpoint:
    turn = checkpoint.turn
    return replace(checkpoint, turn=replace(turn, cancelling=True)) if turn else checkpoint


def _ask_opened(checkpoint: Checkpoint, record: Record, body: dict[str, Any]) -> Checkpoint:
    ask = Ask(
        AskId(body["askId"]),
        body["kind"],
        body["title"],
        body["toolKind"],
        tuple(Option(o["optionId"], o["name"], o["kind"]) for o in body["options"]),
        _dumps(body["requestId"]),
        raw_tail("params", record.body),
        record.at_ms,
    )
    turn = checkpoint.turn
    return replace(checkpoint, asks=(*checkpoint.asks, ask), turn=replace(turn, asked=turn.asked + 1) if turn else None)


def _ask_resolved(checkpoint: Checkpoint, record: Record, body: dict[str, Any]) -> Checkpoint:
    turn = checkpoint.turn
    if turn and body["outcome"] == "denied":
        turn = replace(turn, denied=turn.denied + 1)
    return replace(checkpoint, asks=tuple(a for a in checkpoint.asks if a.ask_id != body["askId"]), turn=turn)


def _setting(checkpoint: Checkpoint, record: Record, body: dict[str, Any]) -> Checkpoint:
    if "modeId" in body:
        checkpoint = replace(checkpoint, mode=body["modeId"])
    if "configId" not in body:
        return checkpoint
    chosen = ConfigOption(body["configId"], _dumps(body["value"]))
    kept = tuple(option for option in checkpoint.options if option.config_id != chosen.config_id)
    changed = replace(checkpoint, options=(*kept, chosen))
    listed = as_list(body.get("configOptions"))
    return with_config_options(changed, listed) if listed else changed


def _hibernating(checkpoint: Checkpoint, record: Record, body: dict[str, Any]) -> Checkpoint:
    return replace(checkpoint, state=State.HIBERNATING)


def _refused(checkpoint: Checkpoint, record: Record, body: dict[str, Any]) -> Checkpoint:
    refusal = Refusal(record.at_ms, body["reason"], tuple((b[0], b[1]) for b in body["blockers"]))
    if not body["counted"]:  # the session was only used meanwhile
        return replace(checkpoint, state=State.READY)
    return replace(checkpoint, state=State.READY, refusals=checkpoint.refusals + 1, last_refusal=refusal)


def _asleep(checkpoint: Checkpoint, *_: Any) -> Checkpoint:
    """No harness any more: what it asked can no longer be answered."""
    return replace(checkpoint, state=State.HIBERNATED, host_id=None, asks=(), turn=None)


def _exited(checkpoint: Checkpoint, record: Record, body: dict[str, Any]) -> Checkpoint:
    return replace(_asleep(checkpoint), last_error=body["message"])


def _closed(checkpoint: Checkpoint, record: Record, body: dict[str, Any]) -> Checkpoint:
    return replace(_asleep(checkpoint), state=State.CLOSED)


def _changed(checkpoint: Checkpoint, record: Record, body: dict[str, Any]) -> Checkpoint:
    if "name" in body:
        checkpoint = replace(checkpoint, name=body["name"])
    if "title" in body:
        checkpoint = replace(checkpoint, title=body["title"])
    if "policy" in body:
        checkpoint = replace(checkpoint, policy=Policy(body["policy"]))
    if "idleAfterS" in body:
        checkpoint = replace(checkpoint, idle_after_s=body["idleAfterS"], pinned=body["pinned"])
    return checkpoint


def _dumps(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


_RULES: dict[Kind, Callable[[Checkpoint, Record, dict[str, Any]], Checkpoint]] = {
    Kind.CHANGED: _changed,
    Kind.PROMPTED: _prompted,
    Kind.WAKING: _waking,
    Kind.WOKE: _woke,
    Kind.WAKE_FAILED: _wake_failed,
    Kind.TURN_STARTED: _turn_started,
    Kind.TURN_ENDED: _turn_over,
    Kind.TURN_FAILED: _turn_over,
    Kind.CANCELLED: _cancelled,
    Kind.ASK_OPENED: _ask_opened,
    Kind.ASK_RESOLVED: _ask_resolved,
    Kind.SETTING: _setting,
    Kind.HIBERNATING: _hibernating,
    Kind.HIBERNATED: _asleep,
    Kind.RETIRE_REFUSED: _refused,
    Kind.EXITED: _exited,
    Kind.STOPPED: _asleep,
    Kind.CLOSED: _closed,
}
