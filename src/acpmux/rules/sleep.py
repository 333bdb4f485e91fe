"""Hibernation as the daemon sees it: it asks, and the host decides (SPEC sections 2 and 5)."""

from acpmux.model.ids import HostSeq
from acpmux.model.record import Kind
from acpmux.model.session import State, Want
from acpmux.rules import idle, stop, turns
from acpmux.rules.draft import Draft
from acpmux.rules.messages import (
    BlockersGone,
    Done,
    IdleDue,
    LetHostGo,
    LogRefusal,
    Reject,
    Retire,
    Retired,
    RetireRefused,
    SleepAsked,
)
from acpmux.rules.waking import start

_COUNTED = ("held", "unknown", "unstopped")  # the others say only that the session was used meanwhile


def idle_due(draft: Draft, event: IdleDue) -> None:
    """Asks for the retirement when the period that ends now was a period of rest; else `rearm` starts a new one."""
    if event.epoch != draft.live.epoch or draft.live.armed_at is None:
        return
    draft.set(armed_at=None)
    resting = draft.live.idle_from is not None and not idle.holds(draft.session, draft.now)
    if draft.checkpoint.state is State.READY and resting:
        _retire(draft, "idle")


def sleep_asked(draft: Draft, event: SleepAsked) -> None:
    """A person asks now: the deadline and attached clients are ignored, and nothing else."""
    state, work = draft.checkpoint.state, idle.work_holds(draft.session, draft.now)
    if state in (State.HIBERNATED, State.PARKED):
        draft.do(Done(event.token))
    elif state is State.HIBERNATING:
        draft.set(sleepers=(*draft.live.sleepers, event.token))
    elif state is State.WAKING or draft.live.ending:
        draft.do(Reject(event.token, "state", "a start or stop is under way; try again in a moment"))
    elif work:
        blockers = tuple((hold.pid or 0, hold.kind, hold.detail) for hold in work)
        name = draft.checkpoint.name
        text = f"{name} is in use: {work[0].detail}; see: acpmux why {name}"
        draft.do(Reject(event.token, "host_refused", text, blockers))
    else:
        draft.set(sleepers=(event.token,))
        _retire(draft, "person")


def _retire(draft: Draft, asked: str) -> None:
    draft.record(Kind.HIBERNATING, asked=asked)
    draft.do(Retire(HostSeq(draft.live.host_seq), draft.live.grace_s))


def retired(draft: Draft, event: Retired) -> None:
    turns.fail_turn(draft, "harness_exited", "the agent was put to sleep by a host that answered too late")
    draft.record(
        Kind.HIBERNATED,
        ended=[[e.pid, e.command, e.how] for e in event.ended],
        left=[[e.pid, e.command, e.how] for e in event.left],
        freedBytes=event.freed_bytes,
        tookMs=event.took_ms,
    )
    stop.down(draft)
    draft.do(LetHostGo())
    for token in draft.live.sleepers:
        draft.do(Done(token))
    draft.set(sleepers=(), refused=False)
    wanted = draft.live.want is Want.WAKE or bool(draft.checkpoint.queue or draft.live.requests or draft.live.wakers)
    stop.finish_waiting(draft, event.ended, event.left)
    if wanted and draft.checkpoint.state is State.HIBERNATED:
        start(draft)


def refused(draft: Draft, event: RetireRefused) -> None:
    """Back to READY; the reason is kept, and whoever waited for the sleep is told who is in the way."""
    blockers = tuple((b.pid, b.command, b.why) for b in event.blockers)
    counted = event.kind in _COUNTED
    draft.record(
        Kind.RETIRE_REFUSED,
        kind=event.kind,
        reason=event.reason,
        counted=counted,
        blockers=[list(b) for b in blockers],
    )
    draft.set(refused=counted)
    for token in draft.live.sleepers:
        draft.do(Reject(token, "host_refused", _text(draft.checkpoint.name, event), blockers))
    draft.set(sleepers=())
    if counted:
        draft.do(LogRefusal(event.reason, tuple((b.pid, b.command) for b in event.blockers)))
    if draft.live.want in (Want.STOP, Want.CLOSE, Want.PURGE):
        stop.end_now(draft)
        return
    draft.set(want=Want.NOTHING)
    for token in draft.live.wakers:
        draft.do(Done(token))
    draft.set(wakers=())
    turns.start_next(draft)


def blockers_gone(draft: Draft, event: BlockersGone) -> None:
    """The work that kept it awake has ended: it sleeps one full period later, and not at once."""
    draft.set(refused=False, armed_at=None)  # `rearm` sets a new deadline


def _text(name: str, event: RetireRefused) -> str:
    if not event.blockers:
        return f"{name} stays awake: {event.reason}; see: acpmux why {name}"
    first = event.blockers[0]
    more = f" and {len(event.blockers) - 1} more" if len(event.blockers) > 1 else ""
    return f"{name} stays awake: {first.command} (pid {first.pid}){more} runs under it; see: acpmux why {name}"
