"""Questions to a person: who may answer, and what a policy answers by itself (SPEC section 8)."""

import json

from acpmux.model.ids import AskId
from acpmux.model.record import Kind
from acpmux.model.session import Ask, OnPermission, Option, Policy
from acpmux.rules.draft import Draft
from acpmux.rules.messages import (
    AnswerHarness,
    AskAnswered,
    Done,
    OtherNotification,
    PermissionRequest,
    Reject,
    SendCancel,
)
from acpmux.untyped import parse_json

OPEN_ASKS = 100  # more than any person can answer
_ALLOW = ("allow_once", "allow_always")
_DENY = ("reject_once", "reject_always")
_READS = frozenset({"read", "search", "fetch", "think"})
_EDITS = _READS | {"edit", "delete", "move"}


def permission_asked(draft: Draft, event: PermissionRequest) -> None:
    """Opens the ask, and answers it at once where policy or the prompt's sender has decided.

    Each commit writes all that are open, so one too many is refused.
    """
    if len(draft.checkpoint.asks) >= OPEN_ASKS:
        key, text = f"refuse:{draft.live.host_seq}", f"{OPEN_ASKS} questions wait for a person already"
        draft.do(AnswerHarness(key, event.request_id, None, -32000, text))
        return
    ask_id = AskId(f"a{draft.live.host_seq}-{len(draft.records)}")
    turn = draft.checkpoint.turn
    choice = _decided(draft.checkpoint.policy, event.tool_kind)
    wish = turn.prompt.on_permission if turn else OnPermission.WAIT
    draft.record_tail(
        Kind.ASK_OPENED,
        "params",
        event.params,
        turn.prompt.prompt_id if turn else None,
        askId=ask_id,
        kind="permission",
        title=event.title,
        toolKind=event.tool_kind,
        options=[{"optionId": o.option_id, "name": o.name, "kind": o.kind} for o in event.options],
        requestId=parse_json(event.request_id),
        decided=choice is not None or wish is not OnPermission.WAIT or bool(turn and turn.cancelling),
    )
    ask = draft.checkpoint.asks[-1]
    if turn and turn.cancelling:
        _resolve(draft, ask, None, "cancel", "cancelled")
        return
    if choice is None and wish is not OnPermission.WAIT:
        choice = "deny"
    if choice is None:
        return
    by = "policy" if _decided(draft.checkpoint.policy, event.tool_kind) else "sender"
    _resolve(draft, ask, pick(ask.options, choice), by, "denied" if choice == "deny" else "allowed")
    if by == "sender" and wish is OnPermission.FAIL:
        draft.do(SendCancel())


def _decided(policy: Policy, tool_kind: str) -> str | None:
    """ "allow" or "deny" where the policy says so; an unknown tool kind is never allowed by a narrow policy."""
    match policy:
        case Policy.APPROVE_ALL:
            return "allow"
        case Policy.DENY_ALL:
            return "deny"
        case Policy.APPROVE_READS:
            return "allow" if tool_kind in _READS else None
        case Policy.APPROVE_EDITS:
            return "allow" if tool_kind in _EDITS else None
        case Policy.ASK:
            return None


def pick(options: tuple[Option, ...], choice: str) -> Option | None:
    """The option with this id, else for "allow" and "deny" the narrowest of that kind.

    Ids differ by version, kinds don't.
    """
    for option in options:
        if option.option_id == choice:
            return option
    for kind in {"allow": _ALLOW, "deny": _DENY}.get(choice, ()):
        for option in options:
            if option.kind == kind:
                return option
    return None


def answered(draft: Draft, event: AskAnswered) -> None:
    """The first valid answer wins; a later one is told so."""
    asks = draft.checkpoint.asks
    ask = next((a for a in asks if event.ask_id in (None, a.ask_id)), None)
    if ask is None:
        text = (
            "nothing waits for an answer here"
            if event.ask_id is None
            else f"{event.ask_id} is answered already, or was never asked"
        )
        draft.do(Reject(event.token, "no_such_ask", f"{text}; see: acpmux pending"))
        return
    option = pick(ask.options, event.choice)
    if option is None and event.choice not in ("deny", "cancelled"):
        names = ", ".join(o.option_id for o in ask.options)
        draft.do(Reject(event.token, "usage", f"{event.choice!r} is not one of the options: {names}"))
        return
    denied = option is None or option.kind in _DENY
    _resolve(draft, ask, option, event.by, "denied" if denied else "allowed")
    chosen = option.option_id if option else None
    draft.do(Done(event.token, (("askId", ask.ask_id), ("optionId", chosen))))


def resolve_all(draft: Draft, by: str, outcome: str) -> None:
    """Answers every open ask as cancelled, as ACP wants of a client that cancels a turn."""
    for ask in draft.checkpoint.asks:
        _resolve(draft, ask, None, by, outcome)


def withdrawn(draft: Draft, event: OtherNotification, request_id: bytes) -> None:
    """The harness took its question back (`$/cancel_request`): it still wants an answer, and gets "cancelled"."""
    for ask in draft.checkpoint.asks:
        if ask.request_id == request_id:
            _resolve(draft, ask, None, "agent", "cancelled")


def _resolve(draft: Draft, ask: Ask, option: Option | None, by: str, how: str) -> None:
    turn = draft.checkpoint.turn
    draft.record(
        Kind.ASK_RESOLVED,
        turn.prompt.prompt_id if turn else None,
        askId=ask.ask_id,
        optionId=option.option_id if option else None,
        outcome=how,
        by=by,
    )
    draft.do(AnswerHarness(f"answer:{ask.ask_id}", ask.request_id, result=outcome(option)))


def outcome(option: Option | None) -> bytes:
    """The result of a permission request (ACP `RequestPermissionResponse`)."""
    if option is None:
        return b'{"outcome":{"outcome":"cancelled"}}'
    return b'{"outcome":{"outcome":"selected","optionId":' + json.dumps(option.option_id).encode() + b"}}"
