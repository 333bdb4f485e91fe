import json

import pytest

from acpmux.model.ids import ClientId, HostSeq, PromptId
from acpmux.model.process import Blocker
from acpmux.model.record import Kind
from acpmux.model.session import OnPermission, State, Want
from acpmux.rules import messages as m
from acpmux.rules.lifecycle import IllegalEvent
from kit.dialogue import BLOCKS, EXITED, WOKE, Dialogue, of, permission, prompt

RETIRED = m.Retired((m.Ended(11, "agent", "term"),), (), 1000, 50)
HELD = m.RetireRefused("held", "somebody else runs under it", False, (Blocker(42, 1, "vite", "not a server"),))
CANCELLED = m.RetireRefused("cancelled", "the session is used again", False, ())


def test_prompt_to_a_sleeping_session_is_stored_before_it_wakes() -> None:
    d = Dialogue()
    effects = d.ask()
    assert d.kinds == [Kind.PROMPTED, Kind.WAKING]
    assert [type(e) for e in effects] == [m.Join, m.Wake]
    assert d.state is State.WAKING
    assert d.session.checkpoint.queue[0].blocks == BLOCKS


def test_woken_session_sends_the_prompt_that_woke_it() -> None:
    d = Dialogue()
    d.ask()
    effects = d.tell(WOKE)
    assert of(effects, m.SendPrompt) == [m.SendPrompt(d.session.checkpoint.turn.prompt)]  # type: ignore[union-attr]
    assert d.state is State.RUNNING


def test_prompts_to_a_busy_session_run_in_order() -> None:
    d = Dialogue().ready()
    d.ask("p1")
    d.ask("p2")
    assert not of(d.ask("p3"), m.SendPrompt)
    first = d.end_turn("p1")
    assert [e.prompt.prompt_id for e in of(first, m.SendPrompt)] == ["p2"]  # type: ignore[attr-defined]
    assert of(first, m.Resolve) == [m.Resolve(PromptId("p1"))]


def test_a_prompt_id_that_is_running_is_joined_not_run_twice() -> None:
    d = Dialogue().ready()
    d.ask("p1")
    effects = d.ask("p1")
    assert d.kinds == []
    assert [type(e) for e in effects] == [m.Join]


def test_prompt_during_hibernation_waits_and_then_wakes() -> None:
    d = Dialogue().ready()
    d.fall_asleep()
    assert d.state is State.HIBERNATING
    assert of(d.ask(), m.RetireCancel)
    effects = d.tell(RETIRED)
    assert of(effects, m.Wake)
    assert d.state is State.WAKING
    assert of(d.tell(WOKE), m.SendPrompt)


def test_prompt_in_time_cancels_the_retirement_and_runs_at_once() -> None:
    d = Dialogue().ready()
    d.fall_asleep()
    d.ask()
    assert of(d.tell(CANCELLED), m.SendPrompt)
    assert d.state is State.RUNNING
    assert d.session.checkpoint.refusals == 0


def test_refused_retirement_names_the_blocker_and_restarts_the_period() -> None:
    d = Dialogue().ready()
    d.fall_asleep()
    before = d.now
    effects = d.tell(HELD)
    assert d.state is State.READY
    assert d.session.checkpoint.last_refusal is not None
    assert d.session.checkpoint.last_refusal.blockers == ((42, "vite"),)
    assert of(effects, m.LogRefusal)
    assert d.session.live.armed_at == before + 120


def test_unstable_listing_is_asked_again_after_1_2_4_seconds_up_to_30() -> None:
    d = Dialogue().ready()
    unstable = m.RetireRefused("unknown", "the process table would not hold still", True, ())
    waits: list[float] = []
    d.fall_asleep()
    for _ in range(7):
        d.tell(unstable)
        waits.append(d.session.live.armed_at - d.now)  # type: ignore[operator]
        assert of(d.fall_asleep(), m.Retire)
    assert waits == [1, 2, 4, 8, 16, 30, 30]


def test_refusal_never_moves_last_active() -> None:
    d = Dialogue().ready()
    before = d.session.checkpoint.last_active_at_ms
    d.fall_asleep()
    d.tell(HELD)
    assert d.session.checkpoint.last_active_at_ms == before


def test_a_persons_sleep_is_refused_while_a_turn_runs_and_says_so() -> None:
    d = Dialogue().ready()
    d.ask()
    (reject,) = of(d.tell(m.SleepAsked(9)), m.Reject)
    assert reject.code == "host_refused" and reject.blockers[0][1] == "turn"  # type: ignore[attr-defined]


def test_a_persons_sleep_ignores_attached_clients() -> None:
    d = Dialogue().ready()
    d.tell(m.ClientAttached(ClientId("c1")))
    assert of(d.tell(m.SleepAsked(9)), m.Retire)
    assert of(d.tell(RETIRED), m.Done) == [m.Done(9)]
    assert d.state is State.HIBERNATED


def test_attach_wakes_a_sleeping_session() -> None:
    d = Dialogue()
    assert of(d.tell(m.ClientAttached(ClientId("c1"))), m.Wake)


def test_failed_wake_sleeps_again_with_the_reason_and_keeps_the_prompt() -> None:
    d = Dialogue()
    d.ask()
    effects = d.tell(m.WakeFailed("launch_failed", "no such program"))
    assert d.state is State.HIBERNATED
    assert d.session.checkpoint.last_error == "no such program"
    assert [p.prompt_id for p in d.session.checkpoint.queue] == ["p1"]
    assert of(effects, m.RejectPrompts)
    d.tell(m.WakeAsked(5))
    assert of(d.tell(WOKE), m.SendPrompt)


def test_harness_that_exits_in_a_turn_fails_it_once_and_wakes_for_the_next_prompt() -> None:
    d = Dialogue().ready()
    d.ask("p1")
    d.ask("p2")
    effects = d.tell(EXITED)
    assert of(effects, m.Resolve) == [m.Resolve(PromptId("p1"))]
    assert of(effects, m.Wake)
    assert [p.prompt_id for p in d.session.checkpoint.queue] == ["p2"]


def test_restart_in_mid_turn_writes_outcome_unknown_and_wakes_nothing() -> None:
    d = Dialogue().ready()
    d.ask("p1")
    d.ask("p2")
    effects = d.tell(m.Recovered())
    assert d.state is State.HIBERNATED
    assert not of(effects, m.Wake)
    failed = next(r for r in d.records if r.kind is Kind.TURN_FAILED)
    assert json.loads(failed.body)["code"] == "outcome_unknown"
    assert [p.prompt_id for p in d.session.checkpoint.queue] == ["p2"]


def test_stop_answers_every_prompt_and_leaves_the_session_asleep() -> None:
    d = Dialogue().ready()
    d.ask("p1")
    d.ask("p2")
    effects = d.tell(m.StopAsked(9))
    assert {e.prompt_id for e in of(effects, m.Resolve)} == {"p1", "p2"}  # type: ignore[attr-defined]
    assert of(effects, m.EndHost)
    assert of(d.tell(m.HostEnded((), ())), m.Done)
    assert d.state is State.HIBERNATED


def test_stop_during_a_retirement_waits_it_out() -> None:
    d = Dialogue().ready()
    d.fall_asleep()
    effects = d.tell(m.StopAsked(9))
    assert of(effects, m.RetireCancel) and not of(effects, m.EndHost)
    assert of(d.tell(RETIRED), m.Done)
    assert d.state is State.HIBERNATED


def test_stop_whose_retirement_was_refused_ends_the_harness_after_all() -> None:
    d = Dialogue().ready()
    d.fall_asleep()
    d.tell(m.StopAsked(9))
    assert of(d.tell(HELD), m.EndHost)


def test_prompt_while_a_stop_is_under_way_wakes_after_it() -> None:
    d = Dialogue().ready()
    d.tell(m.StopAsked(9))
    assert not of(d.ask("p1"), m.SendPrompt)
    assert of(d.tell(m.HostEnded((), ())), m.Wake)


def test_closed_is_final() -> None:
    d = Dialogue().ready()
    d.tell(m.StopAsked(9, close=True))
    d.tell(m.HostEnded((), ()))
    assert d.state is State.CLOSED
    (reject,) = d.ask()
    assert isinstance(reject, m.Reject)


def test_rm_of_a_sleeping_session_purges_it() -> None:
    d = Dialogue()
    assert d.tell(m.StopAsked(9, purge=True)) == (m.EndHost(False),)  # looks for work that left its tree
    effects = d.tell(m.HostEnded((), ()))
    assert [type(e) for e in effects] == [m.LetHostGo, m.Purge]


def test_illegal_pair_names_the_event_the_state_and_the_cause() -> None:
    with pytest.raises(IllegalEvent, match=r"Retired in state hibernated of s1 \(Retired\)"):
        Dialogue().tell(RETIRED)


def test_a_mode_the_harness_accepted_is_what_every_later_wake_sets_again() -> None:
    d = Dialogue().ready()
    d.tell(m.RequestAsked(4, "session/set_mode", b'{"modeId":"plan"}'))
    setting = (("modeId", "plan"),)
    effects = d.tell(m.RequestAnswered(HostSeq(9), 4, True, b"{}", setting))
    assert d.session.checkpoint.mode == "plan"
    assert of(effects, m.Reply) == [m.Reply(4, True, b"{}")]


def test_a_request_to_a_sleeping_session_waits_for_the_wake() -> None:
    d = Dialogue()
    assert of(d.tell(m.RequestAsked(4, "session/set_mode", b"{}")), m.Wake)
    assert of(d.tell(WOKE), m.SendRequest) == [m.SendRequest(4, "session/set_mode", b"{}")]


def test_cancel_answers_open_asks_and_tells_the_harness() -> None:
    d = Dialogue().ready()
    d.ask()
    d.say(permission())
    effects = d.tell(m.CancelAsked())
    assert of(effects, m.AnswerHarness) and of(effects, m.SendCancel)
    assert d.session.checkpoint.asks == ()


def test_cancel_before_the_turn_began_ends_the_prompt_as_cancelled() -> None:
    d = Dialogue()
    d.ask()
    assert of(d.tell(m.CancelAsked()), m.Resolve)
    assert d.session.checkpoint.queue == ()
    d.tell(WOKE)
    assert d.state is State.READY


def test_a_request_nobody_serves_is_answered_at_once_and_kept() -> None:
    d = Dialogue().ready()
    effects = d.say(m.OtherRequest(b'"x"', "fs/read_text_file", b'{"path":"/a"}'))
    assert of(effects, m.AnswerHarness)[0].error_code == -32601  # type: ignore[attr-defined]
    assert d.kinds == [Kind.REQUEST]


def test_on_permission_deny_answers_for_the_sender_alone() -> None:
    d = Dialogue().ready()
    d.tell(m.PromptAsked(1, prompt("p1", OnPermission.DENY)))
    (answer,) = of(d.say(permission()), m.AnswerHarness)
    assert b'"no"' in answer.result  # type: ignore[attr-defined,operator]
    assert d.session.checkpoint.turn.denied == 1  # type: ignore[union-attr]


def test_want_is_cleared_when_a_retirement_ends() -> None:
    d = Dialogue().ready()
    d.fall_asleep()
    d.ask()
    d.tell(CANCELLED)
    assert d.session.live.want is Want.NOTHING
