"""Laws of the verdict, over every tree that can be under a harness."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from acpmux.census.verdict import judge
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

SERVERS = (Server("a", "srv", (), "n:a", "acp"), Server("b", "other", ("x",), "n:b", "acp"))
ARGV = st.sampled_from(
    [(b"srv",), (b"other", b"x"), (b"claude",), (b"vite",), (b"sh", b"-c", b"srv"), (b"npm exec srv",), ()]
)
MARKER = st.sampled_from([None, None, "n:a", "n:b", "else"])


@st.composite
def rows(draw: st.DrawFn) -> list[Row]:
    count = draw(st.integers(0, 7))
    found = [Row(10, 1, 10, 1, 10, "S", 1, (b"node", b"adapter"))]
    for number in range(count):
        parent = draw(st.sampled_from([1, *(row.pid for row in found)]))
        pid = 11 + number
        found.append(
            Row(pid, parent, 10, 1, draw(st.integers(5, 30)), "S", 1, draw(ARGV), draw(MARKER), draw(st.booleans()))
        )
    return found


def harness(born: frozenset[Identity]) -> Harness:
    return Harness(Identity(10, 10), 10, (CoreRule("claude"),), born, LaunchRecord(SERVERS), frozenset({1}))


def born_of(found: list[Row], count: int) -> frozenset[Identity]:
    return frozenset(row.identity for row in found[: count + 1])


@settings(max_examples=500)
@given(rows(), st.integers(0, 7), rows())
def test_adding_a_process_never_turns_held_into_clear(found: list[Row], count: int, more: list[Row]) -> None:
    subject = harness(born_of(found, count))
    extra = [row._replace(pid=row.pid + 50, ppid=row.ppid if row.ppid <= 10 else row.ppid + 50) for row in more[1:]]
    if isinstance(judge(Listing(tuple(found)), subject), Held):
        assert not isinstance(judge(Listing((*found, *extra)), subject), Clear)


@settings(max_examples=500)
@given(rows(), st.integers(0, 7), st.randoms())
def test_order_of_rows_means_nothing(found: list[Row], count: int, rng: random.Random) -> None:
    subject = harness(born_of(found, count))
    shuffled = list(found)
    rng.shuffle(shuffled)
    assert judge(Listing(tuple(found)), subject) == judge(Listing(tuple(shuffled)), subject)


@settings(max_examples=500)
@given(rows(), st.integers(0, 7))
def test_a_leader_that_is_not_shown_alive_is_never_clear(found: list[Row], count: int) -> None:
    subject = harness(born_of(found, count))
    for others in (found[1:], [found[0]._replace(start=11), *found[1:]], [found[0]._replace(state="Z"), *found[1:]]):
        assert isinstance(judge(Listing(tuple(others)), subject), Unknown)


@settings(max_examples=500)
@given(rows(), st.integers(0, 7))
def test_clear_means_everybody_is_harness_or_server_or_below_one(found: list[Row], count: int) -> None:
    verdict = judge(Listing(tuple(found)), harness(born_of(found, count)))
    if isinstance(verdict, Clear):
        assert {one.row for one in verdict.judged} == set(found)
        assert all(one.role in (Role.HARNESS, Role.SERVER, Role.UNDER_SERVER) for one in verdict.judged)
        assert not any(one.row.tool and one.role is Role.SERVER for one in verdict.judged)


@settings(max_examples=500)
@given(rows())
def test_a_pid_without_its_start_time_is_never_evidence(found: list[Row]) -> None:
    wrong = frozenset(Identity(row.pid, row.start + 1) for row in found[1:])
    nobody = frozenset[Identity]()
    assert judge(Listing(tuple(found)), harness(wrong)) == judge(Listing(tuple(found)), harness(nobody))
