import pytest

from acpmux.durations import parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("500ms", 0.5), ("90s", 90), ("2m", 120), ("1h", 3600), ("1.5m", 90), ("never", None), (" 2M ", 120)],
)
def test_durations_as_people_write_them(text: str, seconds: float | None) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "2", "m", "-1s", "0s", "1d", "2 m", "1e3s", "99999h", ".5s", "nan", "²s", "٣s", "9" * 5000 + "s"]
)
def test_what_is_no_duration_says_what_is(text: str) -> None:
    with pytest.raises(ValueError, match="write 500ms, 90s, 2m, 1h or never"):
        parse_duration(text)
