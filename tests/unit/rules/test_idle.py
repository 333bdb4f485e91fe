from acpmux.model.ids import ClientId
from acpmux.model.process import Blocker
from acpmux.model.session import Live, State
from acpmux.rules import idle
from acpmux.rules import messages as m
from kit.dialogue import Dialogue, of, permission


def chunk() -> m.Update:
    return m.Update("agent_message_chunk", b'{"update":{"sessionUpdate":"agent_message_chunk"}}')


def test_period_starts_at_the_turns_end() -> None:
    d = Dialogue().ready()
    d.ask()
    assert d.session.live.armed_at is None
    d.now += 720
    d.end_turn()
    assert d.session.live.armed_at == d.now + 120


def test_deadline_of_an_old_epoch_is_void() -> None:
    d = Dialogue().ready()
    old = d.armed()
    d.ask()
    d.end_turn()
    d.now += 500
    assert not of(d.tell(old), m.Retire)
    assert d.state is State.READY


def test_attached_client_holds_until_it_has_not_touched_for_its_time() -> None:
    d = Dialogue(live=Live(attached_hold_s=1800)).ready()
    d.tell(m.ClientAttached(ClientId("c")))
    assert d.session.live.armed_at == d.now + 1800
    began = d.now
    assert not of(d.fall_asleep(), m.Retire)
    assert d.session.live.armed_at == began + 1800 + 120
    assert of(d.fall_asleep(), m.Retire)


def test_touch_restarts_an_attached_clients_time() -> None:
    d = Dialogue().ready()
    d.tell(m.ClientAttached(ClientId("c")))
    d.now += 1000
    d.tell(m.ClientTouched(ClientId("c")))
    assert d.session.live.armed_at == d.now + 1800


def test_detach_starts_a_whole_period() -> None:
    d = Dialogue().ready()
    d.tell(m.ClientAttached(ClientId("c")))
    d.now += 50
    d.tell(m.ClientDetached(ClientId("c")))
    assert d.session.live.armed_at == d.now + 120


def test_output_outside_a_turn_holds_for_ten_seconds_of_quiet() -> None:
    d = Dialogue().ready()
    d.now += 100
    d.say(chunk())
    assert d.session.live.armed_at == d.now + 10
    assert not of(d.fall_asleep(), m.Retire)
    assert d.session.live.armed_at == d.now + 120


def test_usage_outside_a_turn_neither_holds_nor_moves_the_clock() -> None:
    d = Dialogue().ready()
    before = d.session.live.armed_at
    d.now += 5
    d.say(m.Update("usage_update", b'{"update":{"sessionUpdate":"usage_update","used":1}}'))
    assert d.session.live.armed_at == before


def test_open_ask_holds() -> None:
    d = Dialogue().ready()
    d.ask()
    d.say(permission())
    assert {h.kind for h in idle.holds(d.session, d.now)} == {"turn", "ask"}


def test_it_sleeps_one_full_period_after_what_kept_it_awake_has_ended() -> None:
    d = Dialogue().ready()
    d.fall_asleep()
    d.tell(m.RetireRefused("held", "vite", False, (Blocker(42, 1, "vite", "no server"),)))
    d.now += 119
    d.tell(m.BlockersGone())
    assert d.session.live.armed_at == d.now + 120
    assert of(d.fall_asleep(), m.Retire)


def test_never_pins() -> None:
    d = Dialogue(live=Live(idle_after_s=None)).ready()
    assert d.session.live.armed_at is None
    assert [h.kind for h in idle.holds(d.session, d.now)] == ["pinned"]


def test_shorter_period_set_while_idle_counts_from_now() -> None:
    d = Dialogue().ready()
    d.tell(m.ChangeAsked(1, idle_after_s=5.0))
    assert d.session.live.armed_at == d.now + 5


def test_unanswered_client_request_holds() -> None:
    d = Dialogue().ready()
    d.tell(m.RequestAsked(1, "session/set_mode", b"{}"))
    assert d.session.live.armed_at is None
