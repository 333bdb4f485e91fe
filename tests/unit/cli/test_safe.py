"""Nothing an agent says moves a person's cursor."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acpmux.cli.safe import for_people


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("plain \t text\n caf\u00e9 \U0001f600", "plain \t text\n caf\u00e9 \U0001f600"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[2J\x1b[1;1Hallow?", "allow?"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\link", "link"),
        ("\x1b]52;c;clipboard", ""),
        ("a\rb\x08c\x7fd\x9b31me", "abcd31me"),
        ("\u202eevil\u202c", "evil"),
        ("\x1bcreset", "reset"),
    ],
)
def test_sequences_go_and_text_stays(said: str, shown: str) -> None:
    assert for_people({"a": [said]}) == {"a": [shown]}


@given(st.text())
def test_no_control_is_left(text: str) -> None:
    assert not any((ord(c) < 32 and c not in "\n\t") or 127 <= ord(c) < 160 for c in for_people(text))
