"""Where acpmux keeps its things: folders 0700, files 0600, and socket paths that fit (SPEC section 10)."""

import errno
import fcntl
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from acpmux.errors import AccessDenied, OwnFault

SOCKET_PATH_BYTES = 100  # sun_path holds 108 bytes on Linux and 104 elsewhere, its end mark included


@dataclass(frozen=True, slots=True)
class Lock:
    """The daemon's lock, held until it is released or the process ends (flock(2))."""

    fd: int

    def release(self) -> None:
        os.close(self.fd)


@dataclass(frozen=True, slots=True)
class Paths:
    """Every path below one home; nothing is created before `prepare`."""

    home: Path

    @staticmethod
    def find(env: Mapping[str, str]) -> "Paths":
        """`ACPMUX_HOME`, else the platform's user state folder."""
        told = env.get("ACPMUX_HOME")
        if told:
            return Paths(Path(os.path.abspath(told)))
        import platformdirs

        return Paths(Path(platformdirs.user_state_dir("acpmux", appauthor=False)))

    @property
    def config_file(self) -> Path:
        return self.home / "config.toml"

    @property
    def lock_file(self) -> Path:
        return self.home / "daemon.lock"

    @property
    def db(self) -> Path:
        return self.home / "acpmux.db"

    @property
    def logs(self) -> Path:
        return self.home / "logs"

    @property
    def hosts(self) -> Path:
        return self.home / "hosts"

    @property
    def socket(self) -> Path:
        return self._fitting(self.home / "acpmux.sock", "acpmux.sock")

    def host_folder(self, host_id: str) -> Path:
        return self.hosts / host_id

    def host_socket(self, host_id: str) -> Path:
        return self._fitting(self.host_folder(host_id) / "sock", f"{host_id}.sock")

    def _fitting(self, wanted: Path, short_name: str) -> Path:
        return wanted if len(os.fsencode(wanted)) <= SOCKET_PATH_BYTES else self._short_folder() / short_name

    def _short_folder(self) -> Path:
        """A private folder whose name is made from the user and this home, for homes with long paths."""
        import hashlib  # both only for long paths: this module is on the way of every command
        import tempfile

        digest = hashlib.sha256(os.fsencode(self.home)).hexdigest()[:12]
        base = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
        if len(os.fsencode(base)) > 60:
            base = "/tmp"
        return Path(base) / f"acpmux-{os.getuid()}-{digest}"

    def prepare(self) -> None:
        """Creates the folders. Raises: AccessDenied for one that another user owns or may write to; OwnFault."""
        folders = [self.home, self.logs, self.hosts]
        if self.socket.parent != self.home:
            folders.append(self.socket.parent)
        for folder in folders:
            private_folder(folder)

    def acquire_lock(self) -> Lock | None:
        """The lock of the one daemon of this home, None when another one holds it."""
        fd = os.open(self.lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return None
            raise
        os.ftruncate(fd, 0)
        os.write(fd, f"{os.getpid()}\n".encode())
        return Lock(fd)


def private_folder(folder: Path) -> None:
    """Makes a folder 0700, or checks the one that is there. Raises: AccessDenied; OwnFault."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        told = folder.stat()
    except OSError as error:
        raise OwnFault(
            f"the folder {folder} can't be made: {error.strerror}. Set ACPMUX_HOME to another place"
        ) from None
    if told.st_uid != os.getuid():
        raise AccessDenied(f"the folder {folder} belongs to another user. Set ACPMUX_HOME to a folder of your own")
    if stat.S_IMODE(told.st_mode) & 0o077:
        folder.chmod(0o700)
