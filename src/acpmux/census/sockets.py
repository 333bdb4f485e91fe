"""The ports of a process's sockets (proc_net(5)). Those it listens on are shown, and never judged by."""

import os


def listening(pids: list[int]) -> dict[int, list[int]]:
    """Ports by pid, of those that can be read; each in the network namespace of its process."""
    tables: dict[str, dict[str, tuple[int, int]]] = {}
    found: dict[int, list[int]] = {}
    for pid in pids:
        try:
            namespace = os.readlink(f"/proc/{pid}/ns/net")
            inodes = _sockets(pid)
        except OSError:
            continue
        if inodes and namespace not in tables:
            tables[namespace] = ports(pid, ("tcp", "tcp6"))
        pairs = (tables[namespace].get(inode) for inode in inodes)
        listened = {pair[0] for pair in pairs if pair is not None and pair[1] == 0}
        if listened:
            found[pid] = sorted(listened)
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


def ports(pid: int, protocols: tuple[str, ...]) -> dict[str, tuple[int, int]]:
    """(own port, the other end's) by socket inode, of the process's network namespace; 0 without another end."""
    found: dict[str, tuple[int, int]] = {}
    for name in protocols:
        try:
            with open(f"/proc/{pid}/net/{name}", encoding="ascii", errors="replace") as file:
                lines = file.read().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if len(fields) > 9:
                own, other = (int(address.rsplit(":", 1)[1], 16) for address in fields[1:3])
                found[fields[9]] = (own, other)
    return found
