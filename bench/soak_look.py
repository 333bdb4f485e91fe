"""One look at every process of a home: who it is, whose, and what a daemon or host takes."""

import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

DB_FILES = ("acpmux.db", "acpmux.db-wal", "acpmux.db-shm")


@dataclass(frozen=True, slots=True)
class Usage:
    """What one process takes. `born` is its start in clock ticks, `fds` its open descriptors by kind."""

    born: int
    dirty_kb: int
    rss_kb: int
    threads: int
    fds: Counter[str]


@dataclass(slots=True)
class Look:
    """`agents` and `servers` are counted by session id; `jobs` are the names of background jobs that run."""

    daemons: dict[int, Usage] = field(default_factory=dict[int, Usage])
    hosts: dict[int, Usage] = field(default_factory=dict[int, Usage])
    agents: Counter[str] = field(default_factory=Counter[str])
    servers: Counter[str] = field(default_factory=Counter[str])
    jobs: set[str] = field(default_factory=set[str])


def look(home: Path) -> Look:
    found, own = Look(), f"ACPMUX_HOME={home}".encode()
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        try:
            items = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            if own in items:
                words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")[:-1]
                texts = (item.decode("utf-8", "replace") for item in items)
                _add(found, pid, words, {name: value for name, _, value in (text.partition("=") for text in texts)})
        except OSError:
            continue  # it has ended meanwhile
    return found


def _add(found: Look, pid: int, words: list[str], env: dict[str, str]) -> None:
    session_id = env.get("ACPMUX_SESSION_ID", "")
    if words[-2:] == ["daemon", "run"]:
        found.daemons[pid] = _usage(pid)
    elif any("acpmux.host.loop" in word for word in words):
        found.hosts[pid] = _usage(pid)
    elif "ACPMUX_MCP" in env:
        found.servers[session_id] += 1
    elif any(word.endswith("scripted_agent.py") for word in words):
        found.agents[session_id] += 1
    elif words[:2] == ["sh", "-c"] and len(words) == 6:
        found.jobs.add(words[3])


def _usage(pid: int) -> Usage:
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    kb = {line.split(":")[0]: int(line.split()[1]) for line in rollup[1:]}
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return Usage(int(after_name[19]), kb["Private_Dirty"], kb["Rss"], int(after_name[17]), _descriptors(pid))


def _descriptors(pid: int) -> Counter[str]:
    kinds = Counter[str]()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = os.readlink(entry)
        except OSError:
            continue  # closed meanwhile
        kinds["db" if target.endswith(DB_FILES) else "pidfd" if "pidfd" in target else "other"] += 1
    return kinds
