"""Values from outside, as the type that was hoped for, or empty.

What is kept or handed on is the original, not this.
"""

import json
import re
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
        except UnicodeDecodeError:
            raise
        except json.JSONDecodeError:
            raise
        except ValueError:
            value = json.loads(raw, parse_int=_whole)
        halves = rb"\u" in raw if isinstance(raw, bytes) else "\\u" in raw
        return _mended(value) if halves else value
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _whole(digits: str) -> int | str:
    try:
        return int(digits)
    except ValueError:
        return digits


def _mended(value: Any) -> Any:
    if isinstance(value, str):
        return _HALF.sub("\ufffd", value)
    if isinstance(value, dict):
        return {_mended(key): _mended(item) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_mended(item) for item in cast("list[Any]", value)]
    return value


def as_object(value: Any) -> dict[str, Any]:
    """A JSON object, empty for anything else."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """A JSON array, empty for anything else."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def as_text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
