"""Ending a known set of processes: one signal, a grace, KILL for who remains, and certainty that none is left.

Retirement, stop and the clean-up after a crash all come through here.
"""

import os
import selectors
import signal
from collections.abc import Callable, Iterable
from typing import Any

from acpmux.host.signals import Target, open_target, send
from acpmux.host.timers import Timers
from acpmux.model.process import Row

CUT_GRACE_S = 0.3  # once somebody waits for the session, this is all the grace that is left
Outcome = list[tuple[int, int, str, str]]


def open_targets(rows: Iterable[Row]) -> list[Target]:
    """Opens everybody before the first signal: children find new parents the moment theirs exits."""
    return [target for target in map(open_target, rows) if target is not None]


class Ending:
    """Waits for `targets` to go. `done` gets (pid, start, command, how) for each; `how` is term, kill or gone.

    The caller has sent the first signal to them. Their descriptors are closed as they go.
    """

    def __init__(
        self,
        targets: list[Target],
        grace_s: float,
        selector: selectors.BaseSelector,
        timers: Timers,
        done: Callable[[Outcome], None],
    ) -> None:
        self._waiting = {target.fd: target for target in targets}
        self._selector = selector
        self._timers = timers
        self._done = done
        self._killed = False
        self._outcome: Outcome = []
        for target in targets:
            selector.register(target.fd, selectors.EVENT_READ, self._gone)
        self._timer = timers.after(grace_s, self._kill)
        if not targets:
            timers.after(0, self._finish)

    def cut(self) -> None:
        """Somebody waits now: 300 ms is all the grace that is left."""
        if not self._killed:
            self._timers.cancel(self._timer)
            self._timer = self._timers.after(min(CUT_GRACE_S, self._timers.left(self._timer)), self._kill)

    def _gone(self, key: selectors.SelectorKey, _: Any) -> None:
        target = self._waiting.pop(key.fd)
        self._selector.unregister(key.fd)
        os.close(key.fd)
        how = "kill" if self._killed else "term"
        self._outcome.append((target.identity.pid, target.identity.start, target.command, how))
        if not self._waiting:
            self._finish()

    def _kill(self) -> None:
        self._killed = True
        for target in self._waiting.values():
            send(target, signal.SIGKILL)

    def _finish(self) -> None:
        self._timers.cancel(self._timer)
        self._done(sorted(self._outcome))
