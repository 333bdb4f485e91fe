import pytest

from acpmux.model.ids import AskId, SessionId
from acpmux.model.session import Checkpoint, Policy
from acpmux.rules import messages as m
from acpmux.rules.asks import pick
from kit.dialogue import OPTIONS, Dialogue, of, permission


def running(policy: Policy) -> Dialogue:
    d = Dialogue(Checkpoint(SessionId("s1"), "one", "demo", "/tmp", 0, 0, policy=policy)).ready()
    d.ask()
    return d


@pytest.mark.parametrize(
    ("policy", "kind", "option"),
    [
        (Policy.APPROVE_ALL, "execute", b"yes"),
        (Policy.APPROVE_ALL, "", b"yes"),
        (Policy.DENY_ALL, "read", b"no"),
        (Policy.APPROVE_READS, "read", b"yes"),
        (Policy.APPROVE_EDITS, "edit", b"yes"),
    ],
)
def test_policy_answers_by_kind(policy: Policy, kind: str, option: bytes) -> None:
    (answer,) = of(running(policy).say(permission(tool_kind=kind)), m.AnswerHarness)
    assert b'"optionId":"' + option + b'"' in answer.result  # type: ignore[attr-defined,operator]


@pytest.mark.parametrize(
    ("policy", "kind"),
    [
        (Policy.ASK, "read"),
        (Policy.APPROVE_READS, "edit"),
        (Policy.APPROVE_EDITS, "execute"),
        (Policy.APPROVE_EDITS, "x"),
    ],
)
def test_policy_leaves_the_rest_to_a_person(policy: Policy, kind: str) -> None:
    d = running(policy)
    assert not of(d.say(permission(tool_kind=kind)), m.AnswerHarness)
    assert len(d.session.checkpoint.asks) == 1


def test_first_answer_wins_and_the_second_is_told() -> None:
    d = running(Policy.ASK)
    d.say(permission())
    ask_id = d.session.checkpoint.asks[0].ask_id
    first = d.tell(m.AskAnswered(1, ask_id, "allow", "cli"))
    assert of(first, m.AnswerHarness) and of(first, m.Done)
    second = d.tell(m.AskAnswered(2, ask_id, "deny", "page"))
    assert [type(e) for e in second] == [m.Reject]


def test_answer_to_yesterdays_question_never_reaches_todays() -> None:
    d = running(Policy.ASK)
    d.say(permission(b"1"))
    old = d.session.checkpoint.asks[0].ask_id
    d.tell(m.AskAnswered(1, old, "allow", "cli"))
    d.say(permission(b"2"))
    assert d.session.checkpoint.asks[0].ask_id != old
    assert of(d.tell(m.AskAnswered(2, old, "allow", "cli")), m.Reject)
    assert len(d.session.checkpoint.asks) == 1


def test_unknown_option_is_refused_with_the_options() -> None:
    d = running(Policy.ASK)
    d.say(permission())
    (reject,) = d.tell(m.AskAnswered(1, None, "maybe", "cli"))
    assert "yes, always, no" in reject.message  # type: ignore[union-attr]


def test_question_the_agent_took_back_is_answered_as_cancelled() -> None:
    d = running(Policy.ASK)
    d.say(permission(b'"u-1"'))
    effects = d.say(m.OtherNotification("$/cancel_request", b'{"requestId":"u-1"}', b'"u-1"'))
    assert of(effects, m.AnswerHarness)
    assert d.session.checkpoint.asks == ()


def test_nothing_to_answer_says_so() -> None:
    (reject,) = running(Policy.ASK).tell(m.AskAnswered(1, AskId("a9"), "allow", "cli"))
    assert reject.code == "no_such_ask"  # type: ignore[union-attr]


def test_pick_prefers_the_narrowest_allowance() -> None:
    assert pick(OPTIONS, "allow") == OPTIONS[0]
    assert pick(OPTIONS, "always") == OPTIONS[1]
    assert pick(OPTIONS[:2], "deny") is None
