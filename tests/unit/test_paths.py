import os
import stat
import subprocess
import sys
from pathlib import Path

import platformdirs
import pytest

from acpmux.errors import AccessDenied, OwnFault
from acpmux.paths import Paths, private_folder, read_plain
from acpmux.places import SOCKET_PATH_BYTES

HOST = "h0123456789ab"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def home_of(length: int) -> Paths:
    return Paths(Path("/" + "x" * (length - 1)))


def test_home_is_what_the_user_set_else_the_platforms_state_folder() -> None:
    assert Paths.find({"ACPMUX_HOME": "/somewhere/else"}).home == Path("/somewhere/else")
    assert Paths.find({"ACPMUX_HOME": "here"}).home == Path.cwd() / "here"
    found = Paths.find({}).home
    assert found == Path(platformdirs.user_state_dir("acpmux", appauthor=False))
    assert Paths.find({"XDG_STATE_HOME": "/elsewhere"}).home == Path("/elsewhere/acpmux")
    assert Paths.find({"XDG_STATE_HOME": "elsewhere"}).home == found, "the specification has a relative one ignored"


def test_folders_are_made_for_the_user_alone(tmp_path: Path) -> None:
    paths = Paths(tmp_path / "new" / "home")
    paths.prepare()
    paths.prepare()
    assert [mode(folder) for folder in (paths.home, paths.logs, paths.hosts)] == [0o700] * 3


def test_folder_that_others_may_read_is_closed_to_them(tmp_path: Path) -> None:
    folder = tmp_path / "home"
    folder.mkdir()
    folder.chmod(0o755)
    private_folder(folder)
    assert mode(folder) == 0o700


@pytest.mark.parametrize("open_to", [0o770, 0o702, 0o1777])
def test_folder_that_others_may_write_to_is_refused_and_left_alone(tmp_path: Path, open_to: int) -> None:
    folder = tmp_path / "home"
    folder.mkdir()
    folder.chmod(open_to)
    with pytest.raises(AccessDenied, match=r"others may write to .*home.*Set ACPMUX_HOME"):
        Paths(folder).prepare()
    assert mode(folder) == open_to and list(folder.iterdir()) == []


def test_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(AccessDenied, match="not a folder of this user"):
        private_folder(tmp_path)


def test_link_is_followed_only_where_nobody_else_could_have_put_it(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("real")
    private_folder(tmp_path / "link")
    with pytest.raises(AccessDenied):
        private_folder(tmp_path / "link", link_allowed=False)


def test_home_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    with pytest.raises(OwnFault, match=r"home can't be made: .*Set ACPMUX_HOME"):
        Paths(tmp_path / "home").prepare()


@pytest.mark.parametrize("length", range(60, 110))
def test_every_socket_path_fits_whatever_the_homes_length(length: int) -> None:
    paths = home_of(length)
    for path in (paths.socket, paths.host_socket(HOST)):
        assert len(os.fsencode(path)) <= SOCKET_PATH_BYTES


def test_bytes_count_not_characters() -> None:
    assert home_of(80).socket.parent == home_of(80).home
    assert Paths(Path("/" + "ä" * 79)).socket.parent != Paths(Path("/" + "ä" * 79)).home


def test_long_home_has_a_short_folder_of_its_own_whatever_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/1")
    one = home_of(100).socket
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.setenv("TMPDIR", "/elsewhere")
    assert home_of(100).socket == one
    assert home_of(100).host_socket(HOST).parent == one.parent
    assert home_of(101).socket != one


@pytest.mark.parametrize("length", [75, 76, 88, 89])
def test_every_folder_of_a_socket_is_there_after_prepare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    short = tmp_path / "short"
    monkeypatch.setattr("acpmux.places.short_folder", lambda home: str(short))
    monkeypatch.setattr("acpmux.places.SOCKET_PATH_BYTES", len(str(tmp_path)) + SOCKET_PATH_BYTES)
    paths = Paths(tmp_path / ("x" * (length - 1)))
    paths.prepare()
    assert paths.socket.parent.is_dir()
    assert paths.host_socket(HOST).parent in (short, paths.host_folder(HOST))
    assert short.exists() == (paths.host_socket(HOST).parent == short)


def test_only_one_holds_the_lock_until_it_lets_go(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    first = paths.acquire_lock()
    assert first is not None and paths.lock_file.read_text() == f"{os.getpid()}\n" and mode(paths.lock_file) == 0o600
    assert paths.acquire_lock() is None
    first.release()
    again = paths.acquire_lock()
    assert again is not None
    again.release()


def test_pipe_or_device_is_refused_rather_than_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(OSError, match="no plain file"):
            read_plain(path, 10)
    (tmp_path / "file").write_text("x" * 50)
    assert read_plain(tmp_path / "file", 10) == b"x" * 11


def test_finding_the_socket_imports_nothing_slow() -> None:
    told = "import sys; from acpmux.places import home_of, socket_of; socket_of(home_of({'ACPMUX_HOME': '/x'})); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True).stdout.split()
    assert {"asyncio", "pathlib", "platformdirs", "hashlib", "tempfile", "subprocess"}.isdisjoint(loaded)
