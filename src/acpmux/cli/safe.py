"""Text of agents and clients, made safe for a terminal: it can't move the cursor, change colours or turn lines around.

An agent that could would repaint the question a person is about to allow.
"""

import re
from typing import Any

from acpmux.untyped import each_text

_UNSAFE = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # operating system commands: titles, links, the clipboard
    r"|\x1b\[[0-?]*[ -/]*[@-~]"  # colours, cursor, screen
    r"|\x1b[ -/]*[0-~]?"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)


def for_people(value: Any) -> Any:
    """The value with every text in it safe to print; line breaks and tabs stay."""
    return each_text(value, lambda text: _UNSAFE.sub("", text))
