"""Every test has a home of its own and must leave nothing behind."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.leaks import Leaks, run_marker

if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # a suite in the background: its commands are interrupted all the same
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def nothing_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[None]:
    """Fails a test that leaves threads, descriptors or processes, and keeps it away from the user's own sessions."""
    monkeypatch.setenv("ACPMUX_HOME", str(tmp_path / "acpmux-home"))
    for name in ("ACPMUX_SOCKET", "ACPMUX_SESSION_ID", "ACPMUX_HOST", "ACPMUX_MCP"):
        monkeypatch.delenv(name, raising=False)
    marker = run_marker()
    monkeypatch.setenv(*marker)
    leaks = Leaks("=".join(marker))
    yield
    found = leaks.found()
    if found:
        pytest.fail("left behind: " + "; ".join(found))
