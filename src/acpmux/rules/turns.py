"""Prompts and turns: stored first, queued in order, answered exactly once."""

from dataclasses import replace

from acpmux.model.ids import PromptId
from acpmux.model.record import Kind
from acpmux.model.session import PendingRequest, State, Want
from acpmux.rules.asks import resolve_all
from acpmux.rules.draft import Draft
from acpmux.rules.messages import (
    CancelAsked,
    Done,
    Join,
    NotificationAsked,
    PromptAsked,
    Reject,
    Reply,
    RequestAnswered,
    RequestAsked,
    Resolve,
    SendCancel,
    SendNotification,
    SendPrompt,
    SendRequest,
    TurnEnded,
    TurnFailed,
    WakeAsked,
)
from acpmux.rules.waking import wake_or_queue


def prompt_asked(draft: Draft, event: PromptAsked) -> None:
    """Stores the prompt, unless its id is known here, and starts or wakes what it needs."""
    checkpoint, prompt = draft.checkpoint, event.prompt
    known = {p.prompt_id for p in checkpoint.queue}
    if checkpoint.turn is not None:
        known.add(checkpoint.turn.prompt.prompt_id)
    if prompt.prompt_id not in known:
        draft.record_tail(
            Kind.PROMPTED,
            "prompt",
            prompt.blocks,
            prompt.prompt_id,
            promptId=prompt.prompt_id,
            onPermission=prompt.on_permission.value,
        )
    draft.do(Join(event.token, prompt.prompt_id))
    wake_or_queue(draft)
    start_next(draft)


def start_next(draft: Draft) -> None:
    """Begins the next turn, and sends the requests that waited for the harness, when it is free for them."""
    if draft.checkpoint.state is not State.READY or draft.live.want is not Want.NOTHING:
        return
    _send_waiting(draft)
    if draft.checkpoint.queue:
        prompt, rehydrate = draft.checkpoint.queue[0], draft.checkpoint.rehydrate
        draft.record(Kind.TURN_STARTED, prompt.prompt_id, promptId=prompt.prompt_id, rehydrate=rehydrate)
        draft.do(SendPrompt(prompt, rehydrate))


def turn_ended(draft: Draft, event: TurnEnded) -> None:
    turn = draft.checkpoint.turn
    if turn is None or turn.prompt.prompt_id != event.prompt_id:
        return  # its outcome was written already, by a stop
    resolve_all(draft, "agent", "cancelled")
    draft.record_tail(
        Kind.TURN_ENDED,
        "result",
        event.result,
        event.prompt_id,
        promptId=event.prompt_id,
        stopReason=event.stop_reason,
        asked=turn.asked,
        denied=turn.denied,
    )
    draft.do(Resolve(event.prompt_id))
    start_next(draft)


def turn_failed(draft: Draft, event: TurnFailed) -> None:
    turn = draft.checkpoint.turn
    if turn is None or turn.prompt.prompt_id != event.prompt_id:
        return
    resolve_all(draft, "agent", "cancelled")
    draft.record_tail(
        Kind.TURN_FAILED,
        "error",
        event.error,
        event.prompt_id,
        promptId=event.prompt_id,
        code="harness_error",
        message=event.message,
        asked=turn.asked,
        denied=turn.denied,
    )
    draft.do(Resolve(event.prompt_id))
    start_next(draft)


def fail_turn(draft: Draft, code: str, message: str) -> None:
    """Writes the running turn's outcome when its harness can no longer tell it."""
    turn = draft.checkpoint.turn
    if turn is not None:
        _fail(draft, turn.prompt.prompt_id, code, message, turn.asked, turn.denied)


def fail_queue(draft: Draft, code: str, message: str) -> None:
    for prompt in draft.checkpoint.queue:
        _fail(draft, prompt.prompt_id, code, message, 0, 0)


def _fail(draft: Draft, prompt_id: PromptId, code: str, message: str, asked: int, denied: int) -> None:
    draft.record_tail(
        Kind.TURN_FAILED,
        "error",
        b"null",
        prompt_id,
        promptId=prompt_id,
        code=code,
        message=message,
        asked=asked,
        denied=denied,
    )
    draft.do(Resolve(prompt_id))


def cancel_asked(draft: Draft, event: CancelAsked) -> None:
    """Cancels the running turn, or without one every prompt that has not begun; or only the prompt that is named."""
    turn, only = draft.checkpoint.turn, event.prompt_id
    if turn is None or only not in (None, turn.prompt.prompt_id):
        for prompt in draft.checkpoint.queue:
            if only not in (None, prompt.prompt_id):
                continue
            draft.record_tail(
                Kind.TURN_ENDED,
                "result",
                b'{"stopReason":"cancelled"}',
                prompt.prompt_id,
                promptId=prompt.prompt_id,
                stopReason="cancelled",
                asked=0,
                denied=0,
            )
            draft.do(Resolve(prompt.prompt_id))
        return
    draft.record(Kind.CANCELLED, turn.prompt.prompt_id, promptId=turn.prompt.prompt_id)
    resolve_all(draft, "cancel", "cancelled")
    draft.do(SendCancel())


def request_asked(draft: Draft, event: RequestAsked) -> None:
    draft.set(requests=(*draft.live.requests, PendingRequest(event.token, event.method, event.params)))
    if draft.checkpoint.state in (State.READY, State.RUNNING) and draft.live.want is Want.NOTHING:
        _send_waiting(draft)
    else:
        wake_or_queue(draft)


def _send_waiting(draft: Draft) -> None:
    for request in draft.live.requests:
        if not request.sent:
            draft.do(SendRequest(request.token, request.method, request.params))
    draft.set(requests=tuple(replace(request, sent=True) for request in draft.live.requests))


def notification_asked(draft: Draft, event: NotificationAsked) -> None:
    """Notifications are for a harness that is there; nothing is woken to hear one."""
    if draft.checkpoint.state in (State.READY, State.RUNNING):
        draft.do(SendNotification(event.method, event.params))


def request_answered(draft: Draft, event: RequestAnswered) -> None:
    """A mode or option that the harness accepted becomes what every later wake sets again."""
    request = next((r for r in draft.live.requests if r.token == event.token), None)
    if request is None:
        return
    draft.set(requests=tuple(r for r in draft.live.requests if r.token != event.token))
    if event.ok and event.setting is not None:
        draft.record(Kind.SETTING, **dict(event.setting))
    draft.do(Reply(event.token, event.ok, event.payload))


def reject_requests(draft: Draft, code: str, message: str) -> None:
    for request in draft.live.requests:
        draft.do(Reject(request.token, code, message))
    draft.set(requests=())


def wake_asked(draft: Draft, event: WakeAsked) -> None:
    if draft.checkpoint.state in (State.READY, State.RUNNING) and draft.live.want is Want.NOTHING:
        draft.do(Done(event.token))
        return
    draft.set(wakers=(*draft.live.wakers, event.token))
    wake_or_queue(draft)
