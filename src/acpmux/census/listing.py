"""One face for both listings: /proc on Linux, `ps` on any other Unix."""

import sys
from collections.abc import Callable

from acpmux.census import table
from acpmux.model.process import Harness, Listing


def list_harness(
    harness: Harness,
    host_pid: int,
    end_child: Callable[[int], None],
    frozen: bool = False,
    with_adopted: bool = True,
) -> Listing:
    """Everything under the harness, whole, and what left its tree. Raises: CensusError.

    `end_child` kills and reaps a helper of the listing's own. A Linux whose /proc is hidden has no listing: `ps` reads
    the same one.
    """
    if sys.platform == "linux":
        return table.list_harness(harness, host_pid, frozen, with_adopted)
    from acpmux.census import ps

    return ps.list_harness(harness, host_pid, end_child)
