"""Any split of the bytes gives the same lines."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from acpmux.host.core import Outbox
from acpmux.wire.framing import LineReader

lines = st.lists(
    st.binary(min_size=1, max_size=40).filter(lambda b: b"\n" not in b and b.strip() and not b.endswith(b"\r")),
    max_size=8,
)
# the host keeps every one of these; noise that repeats itself is another matter (tests/unit/host/test_core.py)
messages = lines.map(lambda told: [b"{" + line for line in told])


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[a:b] for a, b in itertools.pairwise(places)]


@given(lines, st.lists(st.integers(0, 400), max_size=12))
def test_lines_do_not_depend_on_the_split(told: list[bytes], cuts: list[int]) -> None:
    data = b"".join(line + b"\n" for line in told)
    reader = LineReader()
    assert [line for piece in pieces(data, cuts) for line in reader.feed(piece)] == told


@given(messages, st.lists(st.integers(0, 400), max_size=12), st.lists(st.integers(0, 9), max_size=9))
def test_host_numbers_every_message_once_and_in_order(told: list[bytes], cuts: list[int], acks: list[int]) -> None:
    box = Outbox()
    got: list[tuple[int, bytes]] = []
    for piece in pieces(b"".join(line + b"\n" for line in told), cuts):
        box.feed(piece)
        if acks:
            box.ack(min(acks.pop(), box.sent))
        while (line := box.next()) is not None:
            got.append(line)
    assert got == list(enumerate(told, 1))
    assert not box.partial


@given(messages, st.integers(0, 8))
def test_new_link_gets_what_was_not_stored_and_no_more(told: list[bytes], stored: int) -> None:
    box = Outbox()
    box.feed(b"".join(line + b"\n" for line in told))
    while box.next() is not None:
        pass
    stored = min(stored, len(told))
    box.resume(stored)
    again: list[tuple[int, bytes]] = []
    while (line := box.next()) is not None:
        again.append(line)
    assert again == list(enumerate(told, 1))[stored:]
