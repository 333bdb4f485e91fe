"""What a test leaves behind: threads, open descriptors, and processes that carry its run's marker."""

import gc
import os
import signal
import threading
import time
import uuid
from pathlib import Path

_RUN = uuid.uuid4().hex
SETTLE_S = 3.0  # an ended process is gone at once; a host waits for its last link


def run_marker() -> tuple[str, str]:
    """The variable every process of this test run inherits."""
    return "ACPMUX_TEST_RUN", _RUN


class Leaks:
    """Takes the state before a test; `found` names what is there after it and was not before."""

    def __init__(self, marker: str) -> None:
        self._marker = marker.encode()
        self._threads = set(threading.enumerate())
        self._descriptors = descriptors()
        self._processes = set(marked(self._marker))

    def found(self) -> list[str]:
        """Waits a moment for what is about to end. Processes that stay are ended, by identity."""
        deadline = time.monotonic() + SETTLE_S
        while True:
            left = self._left()
            if not left or time.monotonic() > deadline:
                break
            time.sleep(0.02)
        for pid in set(marked(self._marker)) - self._processes:
            end(pid, self._marker)
        return left

    def _left(self) -> list[str]:
        gc.collect()
        left = [f"thread {t.name}" for t in threading.enumerate() if t not in self._threads and t.is_alive()]
        left += [f"descriptor {fd}: {to}" for fd, to in descriptors().items() if self._descriptors.get(fd) != to]
        for pid in sorted(set(marked(self._marker)) - self._processes):
            left.append(f"process {pid}: {command(pid)}")
        return left


def descriptors() -> dict[str, str]:
    """The open descriptors of this process, by number, with what they are."""
    found: dict[str, str] = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[name] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue  # the listing's own
    return found


def marked(marker: bytes) -> list[int]:
    """Every other process whose environment carries the marker."""
    own = os.getpid()
    found: list[int] = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != own and carries(int(name), marker):
            found.append(int(name))
    return found


def carries(pid: int, marker: bytes) -> bool:
    try:
        return marker in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")[:200]
    except OSError:
        return "?"


def end(pid: int, marker: bytes) -> None:
    """Kills a process of this run: opened first, then proven."""
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if carries(pid, marker):
            signal.pidfd_send_signal(fd, signal.SIGKILL)
    except OSError:
        pass
    finally:
        os.close(fd)
