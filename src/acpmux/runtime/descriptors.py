"""How many descriptors the daemon may have open: a client takes one, a host two. Its children begin as it did."""

import resource

MOST = 65_536  # enough for all agents that a machine holds; where it is unlimited, not that many


def raise_limit() -> int:
    """Raises the soft limit toward the hard one. Returns what it was, for `give_back`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):
            pass  # a system with a limit of its own below (macOS)
    return soft


def give_back(pid: int, soft: int) -> None:
    """A child gets the limit that the daemon was started with: select(2) and loops over all descriptors rely on it."""
    if not hasattr(resource, "prlimit"):
        return
    try:
        _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
    except OSError:
        return  # it is gone
