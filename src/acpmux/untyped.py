"""Values from outside, as the type that was hoped for, or empty.

What is kept or handed on is the original, not this.
"""

from typing import Any, cast


def as_object(value: Any) -> dict[str, Any]:
    """A JSON object, empty for anything else."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """A JSON array, empty for anything else."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def as_text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
