"""JSON from outside: whatever comes, values that can be stored, or a ValueError."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acpmux.untyped import parse_json


def test_half_a_character_is_replaced_in_texts_and_names() -> None:
    assert parse_json(rb'{"a\ud83d": ["x\udc00y", "\ud83d\ude00"]}') == {"a\ufffd": ["x\ufffdy", "\U0001f600"]}


def test_number_of_any_length_is_read() -> None:
    assert parse_json(b"[12345678901234567890, " + b"9" * 6000 + b"]") == [12345678901234567890, "9" * 6000]


@pytest.mark.parametrize("raw", [b"", b"{", b"[" * 100_000, b"\xff", "{'a'}", b'"\x00"'])
def test_what_is_no_json_is_a_value_error(raw: bytes | str) -> None:
    with pytest.raises(ValueError):
        parse_json(raw)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))  # fmt: skip
def test_what_can_be_stored_is_read_as_it_is(value: object) -> None:
    assert parse_json(json.dumps(value)) == value
    assert parse_json(json.dumps(value, ensure_ascii=False).encode()) == value


@given(st.text(st.characters(categories=["Cs", "L"]), max_size=20))
def test_every_text_can_be_stored(text: str) -> None:
    parse_json(json.dumps({text: text})).__repr__().encode("utf-8")
