"""What holds a session awake, and when it is due (SPEC section 2)."""

from acpmux.model.session import Hold, Session, State, Want
from acpmux.rules.draft import Draft
from acpmux.rules.messages import Arm, Disarm

OWN_TURN_QUIET_S = 10.0  # output outside a prompt has no end mark in ACP v1; this much quiet is one
REFUSED_S = 0.5  # the shortest period behind a refusal: each is a record and a census
RETRY_CAP_S = 30.0  # an unstable listing is tried again after 1, 2, 4 ... 30 s rather than a whole period

OWN_TURN_KINDS = frozenset({"agent_message_chunk", "agent_thought_chunk", "tool_call", "tool_call_update", "plan"})


def idle_after_s(session: Session) -> float | None:
    """The session's own period, else the config's; None never sleeps."""
    if session.checkpoint.pinned:
        return None
    own = session.checkpoint.idle_after_s
    return own if own is not None else session.live.idle_after_s


def holds(session: Session, now: float) -> tuple[Hold, ...]:
    """Everything that holds it awake now; empty when it may sleep once its period is over."""
    checkpoint, live = session.checkpoint, session.live
    found: list[Hold] = []
    if idle_after_s(session) is None:
        found.append(Hold("pinned", "it never sleeps by itself (idle.after is never)"))
    found += _client_holds(session, now)
    found += work_holds(session, now)
    if live.ending or checkpoint.state in (State.WAKING, State.HIBERNATING):
        found.append(Hold("busy", "a start, sleep or stop is under way"))
    return tuple(found)


def work_holds(session: Session, now: float) -> list[Hold]:
    """The holds that a person's own request to sleep respects too."""
    checkpoint, live = session.checkpoint, session.live
    found: list[Hold] = []
    if checkpoint.turn:
        found.append(Hold("turn", "a turn is running"))
    if checkpoint.queue:
        found.append(Hold("queue", f"{len(checkpoint.queue)} prompt(s) wait in the queue"))
    if live.requests:
        found.append(Hold("request", f"the agent has not answered {live.requests[0].method}"))
    for ask in checkpoint.asks:
        found.append(Hold("ask", f"it waits for an answer: {ask.title}"))
    if live.own_turn_at is not None and now < live.own_turn_at + OWN_TURN_QUIET_S:
        found.append(Hold("own-turn", "the agent works on its own", until=live.own_turn_at + OWN_TURN_QUIET_S))
    return found


def _client_holds(session: Session, now: float) -> list[Hold]:
    hold_s = session.live.attached_hold_s
    found: list[Hold] = []
    for client in session.live.clients:
        until = None if hold_s is None else client.touched + hold_s
        if until is None or now < until:
            found.append(Hold("client", f"client {client.client_id} is attached", until=until))
    return found


def rearm(draft: Draft, used: bool, held_before: bool) -> None:
    """Keeps the one deadline of this session right after a step.

    While something holds it open-endedly there is none; while all holds have an expiry it is the last expiry, from
    which the
    period then starts; else it is one period after the last use or the end of the last hold.
    """
    if used:
        # forgetting the armed deadline makes every path below arm a new one: the old one's epoch is void
        draft.set(epoch=draft.live.epoch + 1, refused=False, retry_step=0, armed_at=None)
    if draft.checkpoint.state is not State.READY or draft.live.want is not Want.NOTHING:
        _disarm(draft)
        return
    found = holds(draft.session, draft.now)
    if found:
        ends = [hold.until for hold in found if hold.until is not None]
        draft.set(idle_from=None)
        if len(ends) == len(found):
            _arm(draft, max(ends))
        else:
            _disarm(draft)
    elif used or held_before or draft.live.idle_from is None or draft.live.armed_at is None:
        restart(draft)


def restart(draft: Draft) -> None:
    """A whole period from now on."""
    after = idle_after_s(draft.session)
    if after is not None:
        after = max(after, REFUSED_S) if draft.live.refused else after
        draft.set(idle_from=draft.now)
        _arm(draft, draft.now + after)


def retry_soon(draft: Draft) -> None:
    """The doubt passes by itself: ask again after 1, 2, 4 ... 30 s."""
    step = draft.live.retry_step
    draft.set(retry_step=step + 1, idle_from=draft.now)
    _arm(draft, draft.now + min(2.0**step, RETRY_CAP_S))


def _arm(draft: Draft, at: float) -> None:
    if draft.live.armed_at != at:
        draft.set(armed_at=at)
        draft.do(Arm(at, draft.live.epoch))


def _disarm(draft: Draft) -> None:
    if draft.live.armed_at is not None:
        draft.set(armed_at=None, idle_from=None)
        draft.do(Disarm())
