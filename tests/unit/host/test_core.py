import json

import pytest

from acpmux.host import core
from acpmux.host.core import Outbox


def test_line_over_the_limit_becomes_one_short_message() -> None:
    box = Outbox(limit_bytes=10)
    box.feed(b"a\n" + b"x" * 100)
    box.feed(b"x\nb\n")
    lines = [line[1] for line in iter(box.next, None)]
    assert lines[0] == b"a" and lines[2] == b"b"
    assert json.loads(lines[1])["params"] == {"bytes": 101}


def test_begun_line_is_partial_until_it_ends() -> None:
    box = Outbox()
    box.feed(b"begun")
    assert box.partial and box.last == 0
    box.feed(b"\n")
    assert not box.partial and box.last == 1


def test_stored_lines_are_dropped_and_the_harness_waits_while_too_many_are_kept() -> None:
    box = Outbox()
    for _ in range(3):
        box.feed(b"{" + b"x" * (core.KEPT_BYTES // 2 - 1) + b"\n")
    assert box.full
    box.ack(2)
    assert not box.full and box.kept_bytes == core.KEPT_BYTES // 2 + core.LINE_BYTES


def test_daemon_is_given_no_more_than_it_stores() -> None:
    box = Outbox()
    box.feed(b'{"a":1}\n' * (core.FLIGHT_LINES + 5))
    assert len(list(iter(box.next, None))) == core.FLIGHT_LINES
    box.ack(3)
    assert len(list(iter(box.next, None))) == 3


def test_noise_that_repeats_what_still_waits_is_kept_once_and_messages_always() -> None:
    box = Outbox()
    box.feed(b"noise\n" * 1000 + b'{"a":1}\n' * 2)
    assert [line for _, line in iter(box.next, None)] == [b"noise", b'{"a":1}', b'{"a":1}']


@pytest.mark.parametrize(
    ("head", "tail", "told"),
    [
        (b'{"jsonrpc":"2.0","id":7,"result":{"x":"', b'"}}', {"id": 7, "error": -32603}),
        (b'{"result":{"x":"', b'"}, "id": "a", "jsonrpc":"2.0"}', {"id": "a", "error": -32603}),
        (b'{"id":7,"method":"fs/write","params":{"x":"', b'"}}', {"id": 7, "method": "_acpmux/oversized"}),
        (b'{"method":"session/update","params":{"x":"', b'"}}', {"method": "_acpmux/oversized"}),
        (b'{"result":{"x":"', b',\\"id\\":5}"}}', {"method": "_acpmux/oversized"}),
        (b"", b"", {"method": "_acpmux/oversized"}),
    ],
)
def test_answer_over_the_limit_is_an_error_under_its_id(head: bytes, tail: bytes, told: dict[str, object]) -> None:
    box = Outbox(limit_bytes=1000)
    for piece in (head, b"x" * 2000, tail + b"\n"):
        box.feed(piece)
    got = json.loads(box.next()[1])  # type: ignore[index]
    shown = {key: got[key]["code"] if key == "error" else got[key] for key in ("id", "error", "method") if key in got}
    assert shown == told
