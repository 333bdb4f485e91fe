import os
import socket
from pathlib import Path

import pytest

from acpmux.runtime.notify import notifier


@pytest.mark.parametrize("kind", ["path", "abstract"])
def test_readiness_is_told_to_who_started_us_and_to_no_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    path = str(tmp_path / "n") if kind == "path" else f"\0acpmux-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(path)
        manager.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", path.replace("\0", "@"))
        tell = notifier()
        assert "NOTIFY_SOCKET" not in os.environ
        tell()
        assert manager.recv(100) == b"READY=1"


def test_without_a_service_manager_or_with_one_that_is_gone_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    notifier()()
    monkeypatch.setenv("NOTIFY_SOCKET", "/nowhere/n")
    notifier()()
