"""The one way in which use of a session brings its harness up."""

from acpmux.model.record import Kind
from acpmux.model.session import State, Want
from acpmux.rules.draft import Draft
from acpmux.rules.messages import RetireCancel, Wake


def wake_or_queue(draft: Draft) -> None:
    """Starts a sleeping session; tells a host that is asked to retire.

    Where a start or stop is under way, what is queued waits.
    """
    state = draft.checkpoint.state
    if state is State.HIBERNATED and not draft.live.ending:
        start(draft)
    elif state is State.HIBERNATING and draft.live.want is Want.NOTHING:
        draft.set(want=Want.WAKE)
        draft.do(RetireCancel())


def start(draft: Draft) -> None:
    draft.set(want=Want.NOTHING)
    draft.record(Kind.WAKING)
    draft.do(Wake())
