"""Durations as people write them: `500ms`, `90s`, `2m`, `1h`, `never`."""

_UNITS = (("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0))
LONGEST_S = 366 * 86400.0


def parse_duration(text: str) -> float | None:
    """Seconds, None for `never`. Raises: ValueError with what is expected."""
    told = text.strip().lower()
    if told == "never":
        return None
    for unit, seconds in _UNITS:
        number = told.removesuffix(unit)
        if number != told and number.isascii() and number.replace(".", "", 1).isdigit() and number[0] != ".":
            found = float(number) * seconds
            if 0 < found <= LONGEST_S:
                return found
            break
    raise ValueError(f"{text[:40]!r} is no duration; write 500ms, 90s, 2m, 1h or never")
