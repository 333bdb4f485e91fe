"""The fixture that watches every test, watched: each kind of leak is named, and what a test cleans up is not."""

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kit.leaks import MARKER, Leaks, carries, end, started

ROOT = Path(__file__).resolve().parents[2]
SLEEPER = [sys.executable, "-S", "-c", "import time; time.sleep(300)"]
# starts a sleeper that nobody is the parent of, and says its pid
DETACHED = "import os, subprocess, sys; print(subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL).pid)"
NOW_S = 0.05  # nothing here ends by itself
INNER_BUDGET_S = 60.0  # a start of pytest and one settling of 3 s


@pytest.fixture
def leaks(tmp_path: Path) -> Leaks:
    (tmp_path / "home").mkdir()
    return Leaks(tmp_path / "home", marker="inner", settle_s=NOW_S)


def detached(**env: str) -> tuple[int, int]:
    """A process that left this one's tree, as (pid, start time)."""
    done = subprocess.run(
        [sys.executable, "-S", "-c", DETACHED, *SLEEPER],
        env=dict(os.environ) | env,
        capture_output=True,
        text=True,
        check=True,
    )
    start = started(int(done.stdout))
    assert start is not None
    return int(done.stdout), start


def test_clean_test_leaves_nothing(leaks: Leaks, tmp_path: Path) -> None:
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()
    (tmp_path / "file").write_text("in the test's own folder")
    subprocess.run([sys.executable, "-S", "-c", ""], check=True)
    assert leaks.found() == []


def test_thread_is_named(leaks: Leaks) -> None:
    gate = threading.Event()
    thread = threading.Thread(target=gate.wait, name="forgotten")
    thread.start()
    found = leaks.found()
    gate.set()
    thread.join()
    assert found == ["thread forgotten"]


def test_descriptor_is_named_with_what_it_is(leaks: Leaks, tmp_path: Path) -> None:
    fd = os.open(tmp_path / "open", os.O_CREAT)
    found = leaks.found()
    os.close(fd)
    assert found == [f"descriptor {fd}: {tmp_path}/open"]


def test_descriptor_that_was_exchanged_is_named(tmp_path: Path) -> None:
    fd = os.open(tmp_path / "one", os.O_CREAT)
    leaks = Leaks(None, marker="inner", settle_s=NOW_S)
    os.close(fd)
    assert os.open(tmp_path / "two", os.O_CREAT) == fd
    found = leaks.found()
    os.close(fd)
    assert found == [f"descriptor {fd}: {tmp_path}/two"]


def test_what_only_a_cycle_holds_is_no_leak(leaks: Leaks, tmp_path: Path) -> None:
    class Held:
        def __init__(self) -> None:
            self.me = self
            self.fd = os.open(tmp_path / "open", os.O_CREAT)

        def __del__(self) -> None:
            os.close(self.fd)

    Held()
    assert leaks.found() == []


def test_file_in_the_users_home_is_named(leaks: Leaks, tmp_path: Path) -> None:
    (tmp_path / "home/.local").mkdir()
    assert leaks.found() == [f"file {tmp_path}/home/.local"]


def test_task_that_its_run_left_is_named(leaks: Leaks) -> None:
    async def main() -> int:
        forgotten = asyncio.ensure_future(asyncio.Event().wait())
        forgotten.set_name("forgotten")
        await asyncio.sleep(0)
        return 7

    assert leaks.watched(asyncio.Runner().run)(main()) == 7
    (found,) = (one for one in leaks.found() if one.startswith("task"))
    assert found.startswith("task forgotten: <coroutine object Event.wait")


def test_task_that_was_ended_and_awaited_is_no_leak(leaks: Leaks) -> None:
    async def main() -> None:
        task = asyncio.ensure_future(asyncio.Event().wait())
        task.cancel()
        await asyncio.wait({task})

    with asyncio.Runner() as runner:
        leaks.watched(runner.run)(main())
    assert leaks.found() == []


def test_process_that_left_the_tree_is_named_and_ended(leaks: Leaks) -> None:
    pid, start = detached(**{MARKER: "inner"})
    assert leaks.found() == [f"process {pid}: {' '.join(SLEEPER)}"]
    assert started(pid) != start or not carries(pid, f"{MARKER}=inner".encode())


def test_process_of_another_run_is_left_alone(leaks: Leaks) -> None:
    pid, start = detached(**{MARKER: "another"})
    found = leaks.found()
    assert started(pid) == start
    end(pid, start)
    assert found == []


def test_child_that_nobody_waited_for_is_named(leaks: Leaks) -> None:
    pid = os.posix_spawn(sys.executable, [sys.executable, "-S", "-c", ""], {})
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert leaks.found() == [f"process {pid}: (ended, and nobody waited for it)"]
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, 0)


def test_process_with_another_start_time_is_never_signalled() -> None:
    with subprocess.Popen(SLEEPER) as process:
        start = started(process.pid)
        assert start is not None
        end(process.pid, start + 1)
        assert process.poll() is None
        process.kill()


INNER = """
import os, subprocess, sys
def test_clean(): ...
def test_home_is_a_folder_of_its_own(tmp_path):
    assert os.listdir(os.environ["HOME"]) == [] and os.environ["ACPMUX_HOME"].startswith(str(tmp_path))
def test_leaves_a_descriptor(tmp_path):
    os.open(tmp_path / "open", os.O_CREAT)
def test_writes_home():
    open(os.path.expanduser("~/stray"), "w").close()
"""


def test_every_test_of_a_run_is_watched(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text((ROOT / "tests/conftest.py").read_text())
    (tmp_path / "test_inner.py").write_text(INNER)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml"),
         "--rootdir", str(tmp_path), "-o", f"pythonpath={ROOT}/tests", str(tmp_path)],
        cwd=tmp_path, capture_output=True, text=True, timeout=INNER_BUDGET_S, check=False,
    )  # fmt: skip
    assert "4 passed, 2 errors" in done.stdout, done.stdout + done.stderr
    assert "ERROR test_inner.py::test_leaves_a_descriptor" in done.stdout
    assert "ERROR test_inner.py::test_writes_home" in done.stdout
