"""What a harness that was kept ready has read at its start, joined with what it was given with its session."""

from acpmux.census.launch import Launch, joined
from acpmux.model.process import LaunchRecord, Server

OWN = Server("own", "a", (), None, "its config")
GIVEN = Server("given", "b", (), "nonce:given", "acp")


def test_given_server_stands_before_its_namesake_and_both_keep_their_problems() -> None:
    namesake = GIVEN._replace(command="c", marker=None, source="its config")
    own = Launch(LaunchRecord((OWN, namesake), ("not JSON",), ("its config",)), {})
    given = Launch(LaunchRecord((GIVEN,), ("not there",)), {})
    assert joined(given, own).record == LaunchRecord((GIVEN, OWN), ("not JSON", "not there"), ("its config",))


def test_what_was_not_known_at_the_start_is_not_known_now() -> None:
    given = Launch(LaunchRecord((GIVEN,)), {})
    late = joined(given, Launch(LaunchRecord((), timed_out=True), {})).record
    assert late is not None and late.timed_out
    assert joined(given, Launch(None, {})).record is None
