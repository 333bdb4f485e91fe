import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from acpmux.runtime import logs

log = logging.getLogger("acpmux.test")


@pytest.fixture(autouse=True)
def own_log(tmp_path: Path) -> Iterator[None]:
    """The log as it was before: the process has only one."""
    root = logging.getLogger("acpmux")
    before = root.level, root.propagate
    umask = os.umask(0o022)
    logs.set_up(tmp_path)
    yield
    os.umask(umask)
    for handler in tuple(root.handlers):
        root.removeHandler(handler)
        handler.close()
    root.setLevel(before[0])
    root.propagate = before[1]


def test_entries_are_lines_of_the_users_own_file(tmp_path: Path) -> None:
    log.info("woke session=%s pid=%d", "s1", 7)
    log.debug("not told")
    (line,) = (tmp_path / "daemon.log").read_text().splitlines()
    assert line.endswith("INFO acpmux.test woke session=s1 pid=7")
    assert stat.S_IMODE((tmp_path / "daemon.log").stat().st_mode) == 0o600


def test_log_is_bounded_and_every_file_of_it_is_private(tmp_path: Path) -> None:
    for _ in range(12):
        log.info("k=%s", "v" * (logs.FILE_BYTES // 2))
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == ["daemon.log", "daemon.log.1", "daemon.log.2", "daemon.log.3"]
    for path in tmp_path.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600 and path.stat().st_size <= logs.FILE_BYTES


def test_text_from_outside_cannot_pass_for_an_entry(tmp_path: Path) -> None:
    log.info("refused method=%s", "x\n2030-01-01 00:00:00,000 INFO acpmux.daemon all is well\u2028more")
    lines = (tmp_path / "daemon.log").read_text().splitlines()
    assert [line.startswith("    ") for line in lines] == [False, True, True]


def test_text_that_is_no_unicode_is_still_told(tmp_path: Path) -> None:
    log.info("cwd=%s", "/tmp/\udcff")
    assert "cwd=/tmp/\\udcff" in (tmp_path / "daemon.log").read_text()


def test_setting_up_again_leaves_one_file_open(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    logs.set_up(tmp_path / "other")
    log.info("here")
    assert (tmp_path / "daemon.log").read_text() == "" and "here" in (tmp_path / "other/daemon.log").read_text()
