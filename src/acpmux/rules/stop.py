"""Stop, close and remove: a person ends the harness, whatever runs under it (SPEC section 6, row 6)."""

from acpmux.model.record import Kind
from acpmux.model.session import State, Want
from acpmux.rules import turns
from acpmux.rules.draft import Draft
from acpmux.rules.messages import (
    Done,
    Ended,
    EndHost,
    HostEnded,
    HostSurvived,
    LetHostGo,
    Purge,
    Reject,
    RetireCancel,
    StopAsked,
)
from acpmux.rules.waking import start

_RANK = (Want.NOTHING, Want.WAKE, Want.STOP, Want.CLOSE, Want.PURGE)


def stop_asked(draft: Draft, event: StopAsked) -> None:
    """Answers every prompt as stopped, then ends the harness; a retirement under way is waited out, its grace cut."""
    wanted = Want.PURGE if event.purge else Want.CLOSE if event.close else Want.STOP
    turns.fail_turn(draft, "stopped", "the session was stopped in the middle of the turn")
    turns.fail_queue(draft, "stopped", "the session was stopped before this prompt began")
    draft.set(
        want=max(draft.live.want, wanted, key=_RANK.index),
        want_all=draft.live.want_all or event.all,
        stoppers=(*draft.live.stoppers, event.token),
    )
    state = draft.checkpoint.state
    if draft.live.ending:
        return
    if state is State.HIBERNATING:
        draft.do(RetireCancel())
    else:
        end_now(draft)  # also of a session that sleeps: work that left its tree is looked for


def end_now(draft: Draft) -> None:
    draft.set(ending=True)
    draft.do(EndHost(draft.live.want_all))


def host_ended(draft: Draft, event: HostEnded) -> None:
    turns.fail_turn(draft, "stopped", "the session was stopped in the middle of the turn")
    if draft.checkpoint.state not in (State.HIBERNATED, State.CLOSED):
        draft.record(
            Kind.STOPPED,
            ended=[[e.pid, e.command, e.how] for e in event.ended],
            left=[[e.pid, e.command, e.how] for e in event.left],
        )
    down(draft)
    draft.do(LetHostGo())
    text = f"{draft.checkpoint.name} was stopped"
    for token in (*draft.live.wakers, *draft.live.sleepers):
        draft.do(Reject(token, "state", text))
    turns.reject_requests(draft, "state", text)
    draft.set(wakers=(), sleepers=(), ending=False)
    finish_waiting(draft, event.ended, event.left)
    if draft.checkpoint.queue and draft.checkpoint.state is State.HIBERNATED:
        start(draft)


def host_survived(draft: Draft, event: HostSurvived) -> None:
    """It could not be ended: the session stays as it is, and whoever asked is told."""
    for token in draft.live.stoppers:
        draft.do(Reject(token, "host_lost", f"{event.reason}; see: acpmux ps {draft.checkpoint.name}"))
    draft.set(stoppers=(), ending=False, want=Want.NOTHING, want_all=False)
    if draft.checkpoint.state is State.HIBERNATED and (draft.checkpoint.queue or draft.live.requests):
        start(draft)
    turns.start_next(draft)


def finish_waiting(draft: Draft, ended: tuple[Ended, ...], left: tuple[Ended, ...]) -> None:
    """Tells whoever asked to stop, and closes or deletes what was to be closed or deleted."""
    want = draft.live.want
    if want in (Want.CLOSE, Want.PURGE):
        turns.fail_queue(draft, "closed", "the session was closed")
        if draft.checkpoint.state is not State.CLOSED:
            draft.record(Kind.CLOSED)
    detail = (
        ("ended", [{"pid": e.pid, "command": e.command, "how": e.how} for e in ended]),
        ("left", [{"pid": e.pid, "command": e.command, "how": e.how} for e in left]),
    )
    answers = tuple(Done(token, detail) for token in draft.live.stoppers)
    for effect in (Purge(answers),) if want is Want.PURGE else answers:
        draft.do(effect)
    draft.set(stoppers=(), want=Want.NOTHING, want_all=False, ending=False)


def down(draft: Draft) -> None:
    """No harness any more: what was known of it is void."""
    draft.set(pid=None, host_pid=None, own_turn_at=None, host_seq=0, problems=())
