"""The TCP ports a process listens on, to be shown and never judged by (proc_net(5))."""

import os

_LISTEN = "0A"


def listening(pids: list[int]) -> dict[int, list[int]]:
    """Ports by pid, of those that can be read; each in the network namespace of its process."""
    tables: dict[str, dict[str, int]] = {}
    found: dict[int, list[int]] = {}
    for pid in pids:
        try:
            namespace = os.readlink(f"/proc/{pid}/ns/net")
            inodes = _sockets(pid)
        except OSError:
            continue
        if inodes and namespace not in tables:
            tables[namespace] = _table(pid)
        ports = {tables[namespace][inode] for inode in inodes if inode in tables[namespace]}
        if ports:
            found[pid] = sorted(ports)
    return found


def _sockets(pid: int) -> list[str]:
    found: list[str] = []
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{name}")
        except OSError:
            continue
        if target.startswith("socket:["):
            found.append(target[8:-1])
    return found


def _table(pid: int) -> dict[str, int]:
    """Port by socket inode of everything that listens in this process's network namespace."""
    found: dict[str, int] = {}
    for name in ("tcp", "tcp6"):
        try:
            with open(f"/proc/{pid}/net/{name}", encoding="ascii", errors="replace") as file:
                lines = file.read().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if len(fields) > 9 and fields[3] == _LISTEN:
                found[fields[9]] = int(fields[1].rsplit(":", 1)[1], 16)
    return found
