from acpmux.wire.framing import LineReader


def test_long_line_is_dropped_alone() -> None:
    reader = LineReader(limit_bytes=10)
    assert reader.feed(b"short\n" + b"x" * 50) == [b"short"]
    assert reader.feed(b"x" * 50 + b"\nnext\n") == [b"next"]
    assert reader.dropped == 1


def test_empty_lines_and_carriage_returns_are_no_lines() -> None:
    assert LineReader().feed(b"\n\r\na\r\n \n") == [b"a"]
