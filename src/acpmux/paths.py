"""Where acpmux keeps its things: folders 0700, files 0600, and socket paths that fit (SPEC section 10)."""

import errno
import fcntl
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from socket import AF_UNIX, SOCK_STREAM
from socket import socket as Socket

from acpmux import places
from acpmux.errors import AccessDenied, OwnFault

_ANY_HOST = "h" + "0" * 12  # as long as every host's id (model/ids.py)


@dataclass(frozen=True, slots=True)
class Lock:
    """The daemon's lock, held until it is released or the process ends (flock(2)).

    With it the daemon's second address, which stays held when somebody removes the file.
    """

    fd: int
    nameless: Socket | None = None

    def release(self) -> None:
        os.close(self.fd)
        if self.nameless is not None:
            self.nameless.close()


@dataclass(frozen=True, slots=True)
class Paths:
    """Every path below one home; nothing is created before `prepare`."""

    home: Path

    @staticmethod
    def find(env: Mapping[str, str]) -> "Paths":
        """`ACPMUX_HOME`, else the platform's user state folder."""
        return Paths(Path(places.home_of(env)))

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
        return Path(places.socket_of(str(self.home)))

    def host_folder(self, host_id: str) -> Path:
        return self.hosts / host_id

    def host_socket(self, host_id: str) -> Path:
        return Path(places.fitting(str(self.host_folder(host_id) / "sock"), str(self.home), f"{host_id}.sock"))

    def prepare(self) -> None:
        """Creates the folders. Raises: AccessDenied for one that another user owns or may write to; OwnFault."""
        for folder in (self.home, self.logs, self.hosts):
            private_folder(folder)
        if not places.fits(str(self.host_folder(_ANY_HOST) / "sock")):  # the longest of them
            private_folder(Path(places.short_folder(str(self.home))), link_allowed=False)

    def tidy(self) -> None:
        """Takes the short socket folder away when nothing is in it any more."""
        try:
            os.rmdir(places.short_folder(str(self.home)))
        except OSError:
            return  # none, or a host that lives on still listens there

    def acquire_lock(self) -> Lock | None:
        """The lock of the one daemon of this home, None when another one holds it.

        Raises: OwnFault for a file that is a link: what it leads to is not ours to write to.
        """
        try:
            fd = os.open(self.lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise OwnFault(f"the lock {self.lock_file} can't be taken: {error.strerror}") from None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            nameless = self._nameless()
        except OSError as error:
            os.close(fd)
            if error.errno in (errno.EAGAIN, errno.EACCES, errno.EADDRINUSE):
                return None
            raise
        os.ftruncate(fd, 0)
        os.write(fd, f"{os.getpid()}\n".encode())
        return Lock(fd, nameless)

    def _nameless(self) -> Socket | None:
        """Raises: OSError when a daemon holds it."""
        address = places.nameless(str(self.home))
        if address is None:
            return None
        held = Socket(AF_UNIX, SOCK_STREAM)
        try:
            held.bind(address)
        except OSError:
            held.close()
            raise
        return held


def read_plain(path: Path, limit_bytes: int) -> bytes:
    """What a plain file holds, up to the limit and one byte. Raises: OSError, also for a pipe: it may never come."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is no plain file")
        return file.read(limit_bytes + 1)


def private_folder(folder: Path, link_allowed: bool = True) -> None:
    """Makes a folder 0700, or checks the one that is there and closes it to readers.

    One that others may write to is refused rather than closed: it may hold what they put there, and may not be ours
    to close (/tmp). `link_allowed` is for folders whose place only we may change. Raises: AccessDenied; OwnFault.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        told = folder.stat(follow_symlinks=link_allowed)
    except OSError as error:
        raise OwnFault(
            f"the folder {folder} can't be made: {error.strerror}. Set ACPMUX_HOME to another place"
        ) from None
    if told.st_uid != os.getuid() or not stat.S_ISDIR(told.st_mode):
        raise AccessDenied(f"{folder} is not a folder of this user. Set ACPMUX_HOME to a folder of your own")
    if told.st_mode & 0o022:
        raise AccessDenied(f"others may write to {folder}. Set ACPMUX_HOME to a folder that only you may write to")
    if told.st_mode & 0o055:
        folder.chmod(0o700)
