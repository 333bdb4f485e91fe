"""Who would die of the harness's end: work that left its tree and still holds a pipe, a socket or a terminal to it.

Pipes, named ones too, are matched by inode, terminals by index, TCP and UDP sockets by their ports, and Unix sockets
by the peer that sock_diag(7) tells. What can't be known ties: doubt keeps.
"""

import os
import socket
import stat
import struct
from collections.abc import Collection, Mapping

from acpmux.census import sockets

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST_DUMP = 0x301
_UDIAG_SHOW_PEER = 0x4
_UNIX_DIAG_PEER, _UNIX_DIAG_SHUTDOWN = 2, 6
_NLMSG_DONE, _NLMSG_ERROR = 3, 2
_SHUT_BOTH = 3
_PTS_MAJORS = range(136, 144)
_PLAIN_DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
NO_PEER, UNTOLD_PEER = "", "0"  # an inode of 0: connected, and not accepted yet

Ends = Mapping[str, str]


def tied(candidates: Collection[int], holders: Collection[int]) -> frozenset[int]:
    """The candidates that share an open end with a holder, or may."""
    theirs = {pid: _ends(pid) for pid in candidates}
    if all(ends is not None and not ends for ends in theirs.values()):
        return frozenset()
    held = {pid: _ends(pid) for pid in holders}
    ours = {end: at for ends in held.values() for end, at in (ends or {}).items()}
    blind = None in held.values()
    socketed = any(end.startswith("socket:") for ends in theirs.values() for end in ends or ())
    links = _Links(held, blind) if socketed else None

    def meets(pid: int, end: str, at: str) -> bool:
        kind = end.partition(":")[0]
        if kind == "socket":
            return links is None or links.meets(pid, end, at)
        if kind == "file":
            return (blind or end in ours) and _same_fifo(at, ours.get(end))
        if kind == "tty" and (end == "tty:?" or "tty:?" in ours):
            return blind or any(other.startswith("tty:") for other in ours)
        return blind or end in ours

    return frozenset(
        pid for pid, ends in theirs.items() if ends is None or any(meets(pid, *item) for item in ends.items())
    )


# ------------------------------------------------------------ what a process holds


def _ends(pid: int) -> Ends | None:
    """Where its descriptors lead, each with one path to it; None when that can't be read.

    `pipe:INODE`, `socket:INODE`, `tty:INDEX` (`tty:?` where that is not told) and `file:INODE`, which may be a named
    pipe. Those of every thread: one may have a table of its own, and a main thread that ended shows none.
    """
    found: dict[str, str] = {}
    try:
        terminal = _controlling_terminal(pid)
        if terminal is not None:
            found[f"tty:{terminal}"] = f"/proc/{pid}"
        for thread in os.listdir(f"/proc/{pid}/task"):
            _add_ends(f"/proc/{pid}/task/{thread}", terminal, found)
    except (FileNotFoundError, ProcessLookupError):
        return found
    except OSError:
        return None
    return found


def _add_ends(thread: str, terminal: int | None, found: dict[str, str]) -> None:
    """Raises: OSError for what can't be read. What was closed or ended in this moment is no end."""
    try:
        names = os.listdir(f"{thread}/fd")
    except (FileNotFoundError, ProcessLookupError):
        return
    for name in names:
        at = f"{thread}/fd/{name}"
        try:
            end = _end(at, os.readlink(at), terminal)
        except (FileNotFoundError, ProcessLookupError):
            continue
        if end is not None:
            found[end] = at


def _end(at: str, target: str, terminal: int | None) -> str | None:
    if target.startswith(("pipe:[", "socket:[")):
        return target.replace("[", "").replace("]", "")
    if not target.startswith("/") or target in _PLAIN_DEVICES:
        return None
    folder, _, name = target.removesuffix(" (deleted)").rpartition("/")
    if name == "ptmx":
        return f"tty:{_told(at, 'tty-index:') or '?'}"
    if target == "/dev/tty":
        return f"tty:{'?' if terminal is None else terminal}"
    if name.isdigit() and (folder == "" or folder.endswith("/pts")):  # "" in another mount namespace
        return f"tty:{name}"
    return f"file:{_told(at, 'ino:') or target}"


def _told(at: str, field: str) -> str | None:
    """A field of the descriptor's fdinfo (proc(5)); `ino:` is told since Linux 5.14."""
    with open(at.replace("/fd/", "/fdinfo/"), encoding="ascii", errors="replace") as file:
        return next((line.split()[1] for line in file if line.startswith(field)), None)


def _controlling_terminal(pid: int) -> int | None:
    """The index of the pseudo-terminal whose end hangs it up, without any descriptor of it."""
    with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
        data = file.read(4096)
    device = int(data[data.rindex(b")") + 2 :].split()[4])
    major, minor = os.major(device), os.minor(device)
    return (major - _PTS_MAJORS.start) * 256 + minor if major in _PTS_MAJORS else None


def _same_fifo(at: str, other: str | None) -> bool:
    """Whether it is a named pipe, and the other one the same.

    Asked only of what may be shared: looking at a file whose file system hangs would hang too.
    """
    try:
        told = os.stat(at)
        return stat.S_ISFIFO(told.st_mode) and (other is None or os.path.samestat(told, os.stat(other)))
    except (FileNotFoundError, ProcessLookupError):
        return False
    except OSError:
        return True


# ------------------------------------------------------------ sockets


class _Links:
    """Where sockets lead to, as far as the kernel tells."""

    def __init__(self, held: Mapping[int, Ends | None], blind: bool) -> None:
        self._peers = _unix_peers()
        self._tables: dict[str, Mapping[str, tuple[int, int]]] = {}
        self._ours: set[str] = set()
        self._pairs: set[tuple[int, int]] = set()
        self._blind = blind
        for pid, ends in held.items():
            for end, at in (ends or {}).items():
                if end.startswith("socket:"):
                    self._hold(pid, end, at)

    def _hold(self, pid: int, end: str, at: str) -> None:
        inode = end[7:]
        pair = self._table(pid).get(inode)
        self._ours.add(inode)
        if pair is not None:
            self._pairs.add(pair)
        elif inode not in self._peers and not _is_kernels(at):
            self._blind = True

    def meets(self, pid: int, end: str, at: str) -> bool:
        """Whether the other end of this socket is a holder's, or may be. One that only listens has none."""
        inode = end[7:]
        if inode in self._ours:
            return True
        pair = self._table(pid).get(inode)
        if pair is not None:
            local, remote = pair
            return remote != 0 and (self._blind or not self._pairs.isdisjoint([(remote, local), (remote, 0)]))
        peer = self._peers.get(inode)
        if peer is None:
            return not _is_kernels(at)
        return peer in self._ours or peer == UNTOLD_PEER or (self._blind and peer != NO_PEER)

    def _table(self, pid: int) -> Mapping[str, tuple[int, int]]:
        try:
            namespace = os.readlink(f"/proc/{pid}/ns/net")
        except OSError:
            return {}
        if namespace not in self._tables:
            self._tables[namespace] = sockets.ports(pid, ("tcp", "tcp6", "udp", "udp6"))
        return self._tables[namespace]


def _is_kernels(at: str) -> bool:
    """A netlink socket: its other end is the kernel."""
    try:
        return os.getxattr(at, "system.sockprotoname").startswith(b"NETLINK")
    except OSError:
        return False


def _unix_peers() -> dict[str, str]:
    """The peer's inode of every Unix socket of this network namespace, by inode; those the kernel tells."""
    request = struct.pack("=IHHII", 40, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST_DUMP, 1, 0)
    request += struct.pack("=BBHIIIII", socket.AF_UNIX, 0, 0, 0xFFFFFFFF, 0, _UDIAG_SHOW_PEER, 0xFFFFFFFF, 0xFFFFFFFF)
    found: dict[str, str] = {}
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as link:
            link.settimeout(0.05)  # the kernel answers in microseconds; a listing has 30 ms
            link.sendto(request, (0, 0))
            while not _take(link.recv(65536), found):
                pass
    except OSError:
        return found
    return found


def _take(data: bytes, found: dict[str, str]) -> bool:
    """Reads one datagram of answers; true when it was the last."""
    at = 0
    while at + 16 <= len(data):
        length, kind = struct.unpack_from("=IH", data, at)
        if kind in (_NLMSG_DONE, _NLMSG_ERROR) or length < 32 or at + length > len(data):
            return True
        inode = struct.unpack_from("=I", data, at + 16 + 4)[0]
        told = _attributes(data[at + 32 : at + length])
        shut = told.get(_UNIX_DIAG_SHUTDOWN, b"\0")[0] == _SHUT_BOTH  # also when its peer has gone
        peer = None if shut else told.get(_UNIX_DIAG_PEER)
        found[str(inode)] = NO_PEER if peer is None else str(struct.unpack("=I", peer)[0])
        at += (length + 3) & ~3
    return False


def _attributes(data: bytes) -> dict[int, bytes]:
    """The values behind an answer, by their kind (netlink(7))."""
    found: dict[int, bytes] = {}
    at = 0
    while at + 4 <= len(data):
        size, kind = struct.unpack_from("=HH", data, at)
        if size < 4:
            break
        found[kind] = data[at + 4 : at + size]
        at += (size + 3) & ~3
    return found
