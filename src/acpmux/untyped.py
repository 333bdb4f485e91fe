"""Values from outside, as the type that was hoped for, or empty.

What is kept or handed on is the original, not this.
"""

import json
import re
from collections.abc import Callable
from typing import Any, cast

_HALF = re.compile("[\ud800-\udfff]")


def parse_json(raw: bytes | str) -> Any:
    """JSON from outside as values that can be stored and shown.

    Half a character (a lone surrogate, as a cut UTF-16 text has) becomes U+FFFD, a number of more digits than Python
    takes their text. Raises: ValueError, also for what is nested too deeply.
    """
    try:
        try:
            value = json.loads(raw)
        except ValueError as error:
            if type(error) is not ValueError:  # no JSON, or no text at all
                raise
            value = json.loads(raw, parse_int=_whole)
        halves = rb"\u" in raw if isinstance(raw, bytes) else "\\u" in raw
        return each_text(value, _mended) if halves else value
    except RecursionError:
        raise ValueError("nested too deeply") from None


def each_text(value: Any, change: Callable[[str], str]) -> Any:
    """The same JSON value with every text in it changed, names of members too."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        told = cast("dict[str, Any]", value)
        return {change(key): each_text(item, change) for key, item in told.items()}
    if isinstance(value, list):
        return [each_text(item, change) for item in cast("list[Any]", value)]
    return value


def _mended(text: str) -> str:
    return _HALF.sub("\ufffd", text)


def _whole(digits: str) -> int | str:
    try:
        return int(digits)
    except ValueError:
        return digits


def as_object(value: Any) -> dict[str, Any]:
    """A JSON object, empty for anything else."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """A JSON array, empty for anything else."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def as_text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
