"""Settle.

Some agents take a prompt before their servers have connected, and then work without them (SPEC section 7).
"""

from typing import TYPE_CHECKING, Any

from acpmux.host import retire
from acpmux.model.process import Identity, Role

if TYPE_CHECKING:
    from acpmux.host.loop import Host

POLL_S = 0.04  # a few looks in the 300 ms of quiet that are asked for


class Settle:
    """Looks until every configured server is there and nothing below any of them has changed for a while."""

    def __init__(self, host: "Host", header: dict[str, Any]) -> None:
        self._host = host
        self._request = header["id"]
        self._quiet_s = int(header["quiet_ms"]) / 1000
        self._budget = host.timers.after(int(header["budget_ms"]) / 1000, lambda: None)
        self._budget_s = int(header["budget_ms"]) / 1000
        self._quiet = host.timers.after(self._quiet_s, lambda: None)
        self._seen: frozenset[Identity] = frozenset()
        record = host.launch.record
        self._names = {server.name for server in record.servers} if record else set[str]()

    def look(self) -> None:
        judged = retire.known_of(self._host.verdict())
        self._host.duties.know(judged)
        names = {one.server for one in judged if one.role is Role.SERVER}
        there = frozenset(one.row.identity for one in judged if one.server is not None)
        if there != self._seen or not names >= self._names:
            self._seen = there
            self._host.timers.cancel(self._quiet)
            self._quiet = self._host.timers.after(self._quiet_s, lambda: None)
        left = self._host.timers.left(self._budget)
        settled = not self._names or (names >= self._names and self._host.timers.left(self._quiet) == 0)
        if settled or left == 0 or self._host.state != "running":
            self._host.answer(
                "settled",
                id=self._request,
                seen=sorted(name for name in names if name),
                missing=sorted(self._names - names),
                waited_ms=round((self._budget_s - left) * 1000),
            )
        else:
            self._host.timers.after(POLL_S, self.look)
