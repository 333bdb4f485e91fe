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
    loggers = [logging.getLogger(name) for name in ("acpmux", "asyncio")]
    before = [(one.level, one.propagate) for one in loggers]
    umask = os.umask(0o022)
    logs.set_up(tmp_path)
    yield
    os.umask(umask)
    for one, (level, propagate) in zip(loggers, before, strict=True):
        for handler in tuple(one.handlers):
            one.removeHandler(handler)
            handler.close()
        one.setLevel(level)
        one.propagate = propagate


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


def test_what_asyncio_complains_of_goes_there_too_and_not_to_the_unbounded_output(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    logging.getLogger("asyncio").error("socket.accept() out of system resource")
    assert "asyncio socket.accept() out of" in (tmp_path / "daemon.log").read_text()
    assert capfd.readouterr().err == ""
