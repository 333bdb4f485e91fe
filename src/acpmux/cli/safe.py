"""Text of agents and clients, made safe for a terminal: it can't move the cursor, change colours or turn lines around.

An agent that could would repaint the question a person is about to allow.
"""

import re
from typing import Any, cast

_UNSAFE = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # operating system commands: titles, links, the clipboard
    r"|\x1b\[[0-?]*[ -/]*[@-~]"  # colours, cursor, screen
    r"|\x1b[ -/]*[0-~]?"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)


def for_people(value: Any) -> Any:
    """The value with every text in it safe to print; line breaks and tabs stay."""
    if isinstance(value, str):
        return _UNSAFE.sub("", value)
    if isinstance(value, dict):
        return {for_people(key): for_people(item) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [for_people(item) for item in cast("list[Any]", value)]
    return value
