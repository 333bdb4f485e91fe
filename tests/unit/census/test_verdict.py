import pytest

from acpmux.census.identity import Shown
from acpmux.census.verdict import command_text, is_launcher, judge
from acpmux.model.process import (
    Clear,
    CoreRule,
    Harness,
    Held,
    Identity,
    LaunchRecord,
    Listing,
    Role,
    Row,
    Server,
    Unknown,
)

MARK = "nonce:time"
TIME = Server("time", "mcp-server-time", (), MARK, "acp")


def row(
    pid: int,
    ppid: int,
    argv: str = "x",
    marker: str | None = None,
    tool: bool = False,
    start: int | None = None,
    pgid: int = 10,
) -> Row:
    return Row(
        pid, ppid, pgid, 1, pid if start is None else start, "S", 1, tuple(argv.encode().split(b" ")), marker, tool
    )


LAUNCH = LaunchRecord((TIME,))


def harness(*anatomy: CoreRule, born: tuple[int, ...] = (), launch: LaunchRecord | None = LAUNCH) -> Harness:
    return Harness(Identity(10, 10), 10, anatomy, frozenset(Identity(pid, pid) for pid in born), launch, frozenset({1}))


LEADER = row(10, 1, "node adapter")


def roles(verdict: object) -> dict[int, Role]:
    assert isinstance(verdict, Clear | Held)
    return {one.row.pid: one.role for one in verdict.judged}


def test_leader_with_its_marked_server_and_all_below_it_is_clear() -> None:
    rows = (LEADER, row(11, 10, "npm exec time", MARK), row(12, 11, "sh -c time", MARK), row(13, 12, "node time", MARK))
    verdict = judge(Listing(rows), harness())
    assert isinstance(verdict, Clear)
    assert roles(verdict) == {10: Role.HARNESS, 11: Role.SERVER, 12: Role.UNDER_SERVER, 13: Role.UNDER_SERVER}


def test_somebody_else_holds_it_and_is_named() -> None:
    verdict = judge(Listing((LEADER, row(11, 10, "vite --port 5173"))), harness())
    assert isinstance(verdict, Held)
    assert [(b.pid, b.command) for b in verdict.blockers] == [(11, "vite --port 5173")]


def test_a_servers_exact_command_line_without_its_marker_is_somebody_else() -> None:
    assert isinstance(judge(Listing((LEADER, row(11, 10, "mcp-server-time"))), harness()), Held)


def test_a_server_under_a_shell_is_somebody_elses() -> None:
    rows = (LEADER, row(11, 10, "bash"), row(12, 11, "mcp-server-time", MARK))
    assert isinstance(judge(Listing(rows), harness()), Held)


def test_marked_command_of_a_tool_is_never_a_server() -> None:
    assert isinstance(judge(Listing((LEADER, row(11, 10, "mcp-server-time", MARK, tool=True))), harness()), Held)


def test_marker_that_the_harness_carries_itself_proves_nothing() -> None:
    leader = row(10, 1, "node adapter", MARK)
    assert isinstance(judge(Listing((leader, row(11, 10, "vite", MARK))), harness()), Held)


def test_core_by_anatomy_holds_servers_of_its_own() -> None:
    rows = (LEADER, row(11, 10, "/opt/claude --x"), row(12, 11, "mcp-server-time", MARK))
    assert isinstance(judge(Listing(rows), harness(CoreRule("claude"))), Clear)
    assert isinstance(judge(Listing(rows), harness()), Held)


def test_core_by_anatomy_counts_only_as_a_direct_child_of_core() -> None:
    rows = (LEADER, row(11, 10, "bash"), row(12, 11, "claude"))
    assert isinstance(judge(Listing(rows), harness(CoreRule("claude"))), Held)


def test_agents_own_command_in_a_session_of_its_own_is_a_tools() -> None:
    nested = row(11, 10, "claude")._replace(sid=11)
    assert isinstance(judge(Listing((LEADER, nested)), harness(CoreRule("claude"))), Held)


def test_server_known_by_its_line_alone_must_be_in_the_agents_session() -> None:
    named = LaunchRecord((Server("time", "mcp-server-time", (), None, "config"),))
    forms = {"time": Shown((("mcp-server-time",),), (), (), ())}
    server = row(11, 10, "mcp-server-time")
    assert isinstance(judge(Listing((LEADER, server)), harness(launch=named), forms), Clear)
    assert isinstance(judge(Listing((LEADER, server._replace(sid=11))), harness(launch=named), forms), Held)


def test_core_by_birth_needs_a_server_below_it() -> None:
    between = (LEADER, row(11, 10, "wrapper"), row(12, 11, "mcp-server-time", MARK))
    assert isinstance(judge(Listing(between), harness(born=(10, 11))), Clear)
    assert isinstance(judge(Listing(between), harness(born=(10,))), Held)
    stranger = (LEADER, row(11, 10, "git ls-remote"))
    assert isinstance(judge(Listing(stranger), harness(born=(10, 11))), Held)


def test_npx_in_front_of_an_agent_is_part_of_it_and_its_later_children_are_not() -> None:
    chain = (row(10, 1, "npm exec"), row(11, 10, "sh -c agent"), row(12, 11, "node agent"))
    leader = Row(10, 1, 10, 1, 10, "S", 1, (b"npm exec agent",))
    rows = (leader, *chain[1:])
    assert isinstance(judge(Listing(rows), harness(born=(10, 11, 12))), Clear)
    later = (*rows, row(13, 11, "vite"))
    assert isinstance(judge(Listing(later), harness(born=(10, 11, 12))), Held)
    assert isinstance(judge(Listing((leader, row(20, 10, "sh -c vite"))), harness(born=(10,))), Held)


def test_reparented_member_of_the_group_holds_it() -> None:
    assert isinstance(judge(Listing((LEADER, row(11, 1, "sleep 100"))), harness()), Held)


def test_what_left_the_tree_does_not_hold_unless_it_is_tied() -> None:
    gone = row(30, 5, "sleep 100", pgid=30)
    loose = judge(Listing((LEADER,), (gone,)), harness())
    assert isinstance(loose, Clear) and roles(loose)[30] is Role.LEFT_RUNNING
    tied = judge(Listing((LEADER,), (gone,), frozenset({30})), harness())
    assert isinstance(tied, Held) and "holds a pipe" in tied.blockers[0].why


def test_without_a_launch_record_it_ends_only_with_nothing_under_it() -> None:
    assert isinstance(judge(Listing((LEADER,)), harness(launch=None)), Clear)
    assert isinstance(judge(Listing((LEADER, row(11, 10, "mcp-server-time", MARK))), harness(launch=None)), Held)


def test_config_read_that_ran_out_of_time_is_unknown() -> None:
    late = LaunchRecord((TIME,), ("too late",), timed_out=True)
    verdict = judge(Listing((LEADER,)), harness(launch=late))
    assert isinstance(verdict, Unknown) and verdict.reason == "too late" and not verdict.retry


@pytest.mark.parametrize(
    "rows",
    [(), (row(10, 1, start=99),), (LEADER._replace(state="Z"),), (row(11, 10),)],
    ids=["none", "another process", "zombie", "others only"],
)
def test_leader_that_is_not_alive_is_unknown(rows: tuple[Row, ...]) -> None:
    assert isinstance(judge(Listing(rows), harness()), Unknown)


def test_leader_whose_other_threads_live_on_is_alive() -> None:
    assert isinstance(judge(Listing((LEADER._replace(state="Z", threads=3),)), harness()), Clear)


def test_child_older_than_its_parent_is_no_child_of_it() -> None:
    rows = (LEADER, row(11, 10, "time", MARK), row(12, 11, "vite", start=5))
    assert isinstance(judge(Listing(rows), harness()), Held)


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        ("curl --token abc123 x", "curl --token *** x"),
        ("app --api-key=abc", "app --api-key=***"),
        ("env PASSWORD=hunter2", "env PASSWORD=***"),
        ("git clone https://me:secret@host/x", "git clone https://***@host/x"),
        ("x 0123456789abcdef0123456789abcdef01", "x ***"),
        ("a\nb\x1b[31m", "a b [31m"),
        ("y" * 500, "y" * 120),
    ],
)
def test_command_is_fit_for_a_log(argv: str, shown: str) -> None:
    assert command_text(tuple(argv.encode().split(b" "))) == shown


@pytest.mark.parametrize(
    ("argv", "is_one"),
    [((b"npm exec x",), True), ((b"/v/uv", b"tool", b"uvx"), True), ((b"node", b"x.js"), False), ((), False)],
)
def test_launchers_are_known_by_what_they_show(argv: tuple[bytes, ...], is_one: bool) -> None:
    assert is_launcher(argv) is is_one
