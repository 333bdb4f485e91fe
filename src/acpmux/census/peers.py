"""Who still holds a pipe, a socket or a terminal to the harness: such a one would die of the harness's end.

Pipes are matched by inode. Sockets have two inodes; the kernel tells the peer of each through sock_diag(7).
Terminals are matched by
their device and, for a master, by the index in fdinfo.
"""

import os
import socket
import struct

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST_DUMP = 0x301
_UDIAG_SHOW_PEER = 0x4
_UNIX_DIAG_PEER = 2
_NLMSG_DONE, _NLMSG_ERROR = 3, 2


def tied(candidates: list[int], holders: list[int]) -> frozenset[int]:
    """The candidates that share an open end with a holder.

    One whose files can't be read counts as tied: doubt keeps.
    """
    theirs: dict[int, set[str] | None] = {pid: _ends(pid) for pid in candidates}
    if all(ends is not None and not ends for ends in theirs.values()):
        return frozenset()
    ours: set[str] = set()
    for pid in holders:
        ours |= _ends(pid) or set()
    peers = _unix_peers() if any(end.startswith("socket:") for end in ours) else {}
    ours |= {f"socket:{peers[end[7:]]}" for end in tuple(ours) if end.startswith("socket:") and end[7:] in peers}
    return frozenset(pid for pid, ends in theirs.items() if ends is None or ends & ours)


def _ends(pid: int) -> set[str] | None:
    """The pipes (`pipe:N`), sockets (`socket:N`) and terminals (`tty:N`) a process holds, None when that can't be
    read.
    """
    found: set[str] = set()
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except FileNotFoundError:
        return found
    except OSError:
        return None
    for name in names:
        try:
            target = os.readlink(f"/proc/{pid}/fd/{name}")
        except OSError:
            continue
        if target.startswith(("pipe:[", "socket:[")):
            found.add(target.replace("[", "").replace("]", ""))
        elif target.startswith("/dev/pts/") and not target.startswith("/dev/pts/ptmx"):
            found.add(f"tty:{target[9:].split(' ')[0]}")
        elif target.startswith(("/dev/ptmx", "/dev/pts/ptmx")):
            found.add(f"tty:{_master_index(pid, name)}")
    found.discard("tty:ptmx")
    return found


def _master_index(pid: int, fd: str) -> str:
    try:
        with open(f"/proc/{pid}/fdinfo/{fd}", encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith("tty-index:"):
                    return line.split()[1]
    except OSError:
        pass
    return "ptmx"


def _unix_peers() -> dict[str, str]:
    """The peer's inode of every connected Unix socket of this network namespace, by inode.

    Empty where the kernel tells none.
    """
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
        if kind in (_NLMSG_DONE, _NLMSG_ERROR) or length < 16:
            return True
        inode = struct.unpack_from("=I", data, at + 16 + 4)[0]
        attribute = at + 16 + 16
        while attribute + 4 <= at + length:
            size, name = struct.unpack_from("=HH", data, attribute)
            if size < 4:
                break
            if name == _UNIX_DIAG_PEER:
                found[str(inode)] = str(struct.unpack_from("=I", data, attribute + 4)[0])
            attribute += (size + 3) & ~3
        at += (length + 3) & ~3
    return False
