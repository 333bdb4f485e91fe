"""The legality table, and `step`: the one door through which a session changes."""

from collections.abc import Callable
from typing import Any

from acpmux.model.record import Kind
from acpmux.model.session import AWAKE, Attached, Session, State
from acpmux.rules import asks, idle, sleep, stop, turns
from acpmux.rules import messages as m
from acpmux.rules.draft import Draft, Step
from acpmux.rules.waking import wake_or_queue
from acpmux.untyped import parse_json

S = State
_ANY = frozenset(State)
_UP = frozenset({S.WAKING, S.READY, S.RUNNING, S.HIBERNATING})

# which event may come in which state; the diagram in the docs is made from this table
LEGAL: dict[type[Any], frozenset[State]] = {
    m.PromptAsked: _ANY,
    m.CancelAsked: _ANY,
    m.RequestAsked: _ANY,
    m.NotificationAsked: _ANY,
    m.AskAnswered: _ANY,
    m.ClientAttached: _ANY,
    m.ClientTouched: _ANY,
    m.ClientDetached: _ANY,
    m.WakeAsked: _ANY,
    m.SleepAsked: _ANY,
    m.StopAsked: _ANY,
    m.ChangeAsked: _ANY,
    m.IdleDue: _ANY,
    m.HarnessSaid: _UP,
    m.TurnEnded: _UP,
    m.TurnFailed: _UP,
    m.RequestAnswered: _UP,
    m.Woke: frozenset({S.WAKING}),
    m.WakeFailed: frozenset({S.WAKING}),
    m.Retired: frozenset({S.READY, S.RUNNING, S.HIBERNATING}),  # the first two: by a host that answered too late
    m.RetireRefused: frozenset({S.HIBERNATING}),
    m.BlockersGone: _UP,
    m.HarnessExited: _UP,
    m.HostEnded: _ANY,  # a failed wake may have ended first
    m.HostSurvived: _ANY,
    m.Adopted: frozenset({S.READY, S.RUNNING, S.HIBERNATING}),
    m.Recovered: _ANY,
}

# what a person or a client does moves the idle clock; what we or the harness do does not
USES = frozenset(
    {
        m.PromptAsked,
        m.CancelAsked,
        m.RequestAsked,
        m.AskAnswered,
        m.ClientAttached,
        m.ClientTouched,
        m.WakeAsked,
    }
)
_REFUSED_WHEN_CLOSED = (m.PromptAsked, m.RequestAsked, m.WakeAsked, m.SleepAsked, m.AskAnswered)


class IllegalEvent(Exception):
    """An event that cannot happen in this state did: a fault of ours. The text names both and the event's cause."""


def step(session: Session, event: m.Event, now: float, wall_ms: int, cause: str) -> Step:
    """What `event` makes of the session. Pure: the same arguments give the same answer.

    `now` is monotonic seconds, `wall_ms` the wall clock for records, `cause` the id of the request or event behind it.
    Raises: IllegalEvent; the session is then unchanged.
    """
    kind = type(event)
    if session.state not in LEGAL[kind]:
        raise IllegalEvent(
            f"{kind.__name__} in state {session.state.value} of {session.checkpoint.session_id} ({cause})"
        )
    draft = Draft(session, now, wall_ms, cause)
    host_seq = getattr(event, "host_seq", None)
    if host_seq is not None:
        draft.set(host_seq=host_seq)
    if session.state is S.CLOSED and isinstance(event, _REFUSED_WHEN_CLOSED):
        draft.do(m.Reject(event.token, "state", f"{session.checkpoint.name} is closed; see: acpmux new"))
        return draft.finish()
    held_before = bool(idle.holds(session, now))
    _HANDLERS[kind](draft, event)
    used = kind in USES
    if used:
        draft.set(touched_at_ms=wall_ms)
    retry = isinstance(event, m.RetireRefused) and event.retry and draft.checkpoint.state is S.READY
    idle.rearm(draft, used, held_before)
    if retry and draft.live.armed_at is not None:
        idle.retry_soon(draft)
    return draft.finish()


def _attached(draft: Draft, event: m.ClientAttached) -> None:
    others = tuple(c for c in draft.live.clients if c.client_id != event.client_id)
    draft.set(clients=(*others, Attached(event.client_id, draft.now)))
    wake_or_queue(draft)


def _touched(draft: Draft, event: m.ClientTouched) -> None:
    known = any(c.client_id == event.client_id for c in draft.live.clients)
    if known:
        _attached(draft, m.ClientAttached(event.client_id))


def _detached(draft: Draft, event: m.ClientDetached) -> None:
    draft.set(clients=tuple(c for c in draft.live.clients if c.client_id != event.client_id))


def _said(draft: Draft, event: m.HarnessSaid) -> None:
    turn = draft.checkpoint.turn
    prompt_id = turn.prompt.prompt_id if turn else None
    match event.said:
        case m.Update(kind, params):
            draft.add(Kind.UPDATE, params, prompt_id)
            if turn is None and kind in idle.OWN_TURN_KINDS:
                draft.set(own_turn_at=draft.now)
        case m.PermissionRequest():
            asks.permission_asked(draft, event.said)
        case m.OtherRequest(request_id, method, params):
            told, key = parse_json(request_id), f"refuse:{draft.live.host_seq}"
            head = {"method": method, "requestId": told, "key": key}
            draft.record_tail(Kind.REQUEST, "params", params or b"null", prompt_id, **head)
            draft.do(m.AnswerHarness(key, request_id, None, -32601, f"no client here serves {method}"))
        case m.OtherNotification(method, params):
            draft.record_tail(Kind.REQUEST, "params", params or b"null", prompt_id, method=method)
            if event.said.withdraws is not None:
                asks.withdrawn(draft, event.said, event.said.withdraws)
        case m.Noise(reason, sample, skipped):
            params = {"reason": reason, "sample": sample} | ({"skipped": skipped} if skipped else {})
            draft.record(Kind.REQUEST, prompt_id, method="_acpmux/noise", params=params)
        case m.Skipped():
            pass


def _woke(draft: Draft, event: m.Woke) -> None:
    draft.record(
        Kind.WOKE,
        hostId=event.host_id,
        agentSessionId=event.agent_session_id,
        how=event.how,
        pid=event.pid,
        hostPid=event.host_pid,
        tookMs=event.took_ms,
        mode=event.mode,
        modes=_loads(event.modes),
        configOptions=_loads(event.config_options),
        options=[[option.config_id, _loads(option.value)] for option in event.options],
        problems=list(event.problems),
        places=list(event.places),
        servers=[list(server) for server in event.servers],
        pooled=event.pooled,
    )
    draft.set(pid=event.pid, host_pid=event.host_pid, problems=event.problems)
    for token in draft.live.wakers:
        draft.do(m.Done(token))
    draft.set(wakers=())
    turns.start_next(draft)


def _wake_failed(draft: Draft, event: m.WakeFailed) -> None:
    draft.record(Kind.WAKE_FAILED, code=event.code, message=event.message)
    stop.down(draft)
    _reject_waiting(draft, event.code, event.message)
    if draft.checkpoint.queue:
        draft.do(m.RejectPrompts(event.code, event.message))


def _exited(draft: Draft, event: m.HarnessExited) -> None:
    message = _exit_text(event)
    code = "outcome_unknown" if event.lost else "harness_exited"
    turns.fail_turn(draft, code, f"{message} in the middle of the turn; what it had begun may or may not be done")
    draft.record(
        Kind.EXITED,
        code=event.code,
        signal=event.signal,
        stderr=event.stderr,
        message=message,
        ended=[[e.pid, e.command, e.how] for e in event.ended],
        left=[[e.pid, e.command, e.how] for e in event.left],
    )
    stop.down(draft)
    draft.do(m.LetHostGo())
    _reject_waiting(draft, "harness_error", message)
    stop.finish_waiting(draft, event.ended, event.left)
    if draft.checkpoint.queue and draft.checkpoint.state is S.HIBERNATED:
        wake_or_queue(draft)


def _exit_text(event: m.HarnessExited) -> str:
    if event.lost:
        return "the agent's host was lost"
    tail = event.stderr.strip().splitlines()
    return f"the agent exited {event.how}" + (f": {tail[-1][:300]}" if tail else "")


def _adopted(draft: Draft, event: m.Adopted) -> None:
    """What an earlier daemon decided and may not have sent is sent again; its host hands each over once."""
    draft.set(pid=event.pid, host_pid=event.host_pid, problems=event.problems)
    checkpoint, turn = draft.checkpoint, draft.checkpoint.turn
    if checkpoint.state is S.HIBERNATING and not event.retiring:
        reason = "acpmux was restarted"
        draft.record(Kind.RETIRE_REFUSED, kind="restart", reason=reason, counted=False, blockers=[])
    if turn is not None:
        draft.do(m.SendPrompt(turn.prompt, turn.rehydrate))
        if turn.cancelling:
            draft.do(m.SendCancel())
    turns.start_next(draft)


def _recovered(draft: Draft, event: m.Recovered) -> None:
    """Nothing is replayed and nothing is woken on its own; prompts that had not begun are kept."""
    if draft.checkpoint.turn is not None:
        turns.fail_turn(
            draft, "outcome_unknown", "acpmux was restarted in the middle of the turn; its outcome is unknown"
        )
    if draft.checkpoint.state in AWAKE or draft.checkpoint.state is S.WAKING:
        draft.record(Kind.STOPPED, ended=[], left=[])


def _reject_waiting(draft: Draft, code: str, message: str) -> None:
    for token in (*draft.live.wakers, *draft.live.sleepers):
        draft.do(m.Reject(token, code, message))
    draft.set(wakers=(), sleepers=())
    turns.reject_requests(draft, code, message)


def _changed(draft: Draft, event: m.ChangeAsked) -> None:
    body: dict[str, Any] = {}
    if event.name is not None:
        body["name"] = event.name
    if event.title is not None:
        body["title"] = event.title
    if event.policy is not None:
        body["policy"] = event.policy.value
    if event.pinned or event.idle_after_s is not None:
        body |= {"idleAfterS": event.idle_after_s, "pinned": event.pinned}
    draft.record(Kind.CHANGED, **body)
    draft.do(m.Done(event.token))
    if "idleAfterS" in body:
        draft.set(armed_at=None)


def _loads(raw: bytes | None) -> Any:
    return None if raw is None else parse_json(raw)


_HANDLERS: dict[type[Any], Callable[[Draft, Any], None]] = {
    m.PromptAsked: turns.prompt_asked,
    m.CancelAsked: turns.cancel_asked,
    m.RequestAsked: turns.request_asked,
    m.NotificationAsked: turns.notification_asked,
    m.AskAnswered: asks.answered,
    m.ClientAttached: _attached,
    m.ClientTouched: _touched,
    m.ClientDetached: _detached,
    m.WakeAsked: turns.wake_asked,
    m.SleepAsked: sleep.sleep_asked,
    m.StopAsked: stop.stop_asked,
    m.ChangeAsked: _changed,
    m.IdleDue: sleep.idle_due,
    m.HarnessSaid: _said,
    m.TurnEnded: turns.turn_ended,
    m.TurnFailed: turns.turn_failed,
    m.RequestAnswered: turns.request_answered,
    m.Woke: _woke,
    m.WakeFailed: _wake_failed,
    m.Retired: sleep.retired,
    m.RetireRefused: sleep.refused,
    m.BlockersGone: sleep.blockers_gone,
    m.HarnessExited: _exited,
    m.HostEnded: stop.host_ended,
    m.HostSurvived: stop.host_survived,
    m.Adopted: _adopted,
    m.Recovered: _recovered,
}
