"""Laws of a session, over every order of events that can happen to it."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from acpmux.model.ids import ClientId, HostSeq, PromptId
from acpmux.model.process import Blocker
from acpmux.model.record import Kind
from acpmux.model.session import Policy, Session, State
from acpmux.rules import messages as m
from acpmux.rules.fold import fold
from acpmux.rules.lifecycle import LEGAL
from kit.dialogue import EXITED, WOKE, Dialogue, permission, prompt

_BLOCKER = Blocker(42, 1, "vite", "not a server")
_MODE = b'{"update":{"sessionUpdate":"current_mode_update","currentModeId":"plan"}}'

EVENTS: list[m.Event] = [
    *(m.PromptAsked(n, prompt(f"p{n}")) for n in range(4)),
    m.CancelAsked(),
    m.RequestAsked(20, "session/set_mode", b'{"modeId":"plan"}'),
    m.AskAnswered(21, None, "allow", "cli"),
    m.ClientAttached(ClientId("c")),
    m.ClientDetached(ClientId("c")),
    m.WakeAsked(22),
    m.SleepAsked(23),
    m.StopAsked(24),
    m.StopAsked(25, close=True),
    m.ChangeAsked(26, policy=Policy.APPROVE_ALL, idle_after_s=5.0),
    m.HarnessSaid(HostSeq(5), permission()),
    m.HarnessSaid(HostSeq(6), m.Update("current_mode_update", _MODE, "plan")),
    m.HarnessSaid(HostSeq(6), m.Update("agent_message_chunk", b'{"update":{"sessionUpdate":"agent_message_chunk"}}')),
    m.TurnEnded(HostSeq(7), PromptId("p0"), "end_turn", b'{"stopReason":"end_turn"}'),
    m.TurnFailed(HostSeq(7), PromptId("p1"), -32603, "no", b'{"code":-32603,"message":"no"}'),
    m.RequestAnswered(HostSeq(8), 20, True, b"{}", (("modeId", "plan"),)),
    WOKE,
    m.WakeFailed("launch_failed", "no"),
    m.Retired((), (), 0, 1),
    m.RetireRefused("held", "held", False, (_BLOCKER,)),
    m.RetireRefused("unknown", "unstable", True, ()),
    m.BlockersGone(),
    EXITED,
    m.HostEnded((), ()),
    m.HostSurvived("no"),
    m.Recovered(),
]

scripts = st.lists(st.tuples(st.sampled_from(EVENTS), st.floats(0, 200)), max_size=40)


def play(script: list[tuple[m.Event, float]]) -> Dialogue:
    d = Dialogue()
    for event, pause in script:
        d.now += pause
        if d.state in LEGAL[type(event)]:
            if isinstance(event, m.Recovered):
                d.session = Session(d.session.checkpoint)  # what is live ended with the daemon
            d.tell(event)
            check(d)
    return d


def check(d: Dialogue) -> None:
    checkpoint, live = d.session.checkpoint, d.session.live
    assert (checkpoint.turn is not None) == (checkpoint.state is State.RUNNING)
    if checkpoint.state in (State.HIBERNATED, State.CLOSED):
        assert live.pid is None and checkpoint.asks == ()
        assert live.requests == () or live.ending
    if live.armed_at is not None:
        assert checkpoint.state is State.READY
    if checkpoint.state is State.READY and live.armed_at is None:
        assert live.ending or live.requests or checkpoint.asks or live.want.value != "nothing"


@settings(max_examples=400, deadline=None)
@given(scripts)
def test_state_is_the_fold_of_its_records_at_every_prefix(script: list[tuple[m.Event, float]]) -> None:
    d = Dialogue()
    for event, pause in script:
        d.now += pause
        if d.state in LEGAL[type(event)]:
            d.tell(event)
            assert fold(d.first, d.records) == d.session.checkpoint


@settings(max_examples=400, deadline=None)
@given(scripts)
def test_a_prompt_has_one_outcome_at_most_and_one_start(script: list[tuple[m.Event, float]]) -> None:
    d = play(script)
    for kinds in ((Kind.TURN_ENDED, Kind.TURN_FAILED), (Kind.TURN_STARTED,)):
        told = [json.loads(r.body)["promptId"] for r in d.records if r.kind in kinds]
        asked = [json.loads(r.body)["promptId"] for r in d.records if r.kind is Kind.PROMPTED]
        for prompt_id in set(told):
            assert told.count(prompt_id) <= asked.count(prompt_id)


@settings(max_examples=400, deadline=None)
@given(scripts)
def test_no_accepted_prompt_is_ever_lost(script: list[tuple[m.Event, float]]) -> None:
    d = play(script)
    asked = sum(r.kind is Kind.PROMPTED for r in d.records)
    over = sum(r.kind in (Kind.TURN_ENDED, Kind.TURN_FAILED) for r in d.records)
    waiting = len(d.session.checkpoint.queue) + (d.session.checkpoint.turn is not None)
    assert asked == over + waiting


@settings(max_examples=400, deadline=None)
@given(scripts)
def test_a_session_is_only_retired_when_nothing_uses_it(script: list[tuple[m.Event, float]]) -> None:
    d = Dialogue()
    for event, pause in script:
        d.now += pause
        if d.state in LEGAL[type(event)]:
            before = d.session
            effects = d.tell(event)
            if any(isinstance(effect, m.Retire) for effect in effects):
                assert before.checkpoint.turn is None and not before.checkpoint.queue
                assert not before.checkpoint.asks and not before.live.requests
