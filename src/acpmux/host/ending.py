"""Ending a known set of processes: one signal, a grace, KILL for who remains, and certainty that none is left.

Retirement, stop and the clean-up after a crash all come through here.
"""

import selectors
import signal
from collections.abc import Callable

from acpmux.host.signals import Target, close, send
from acpmux.host.signals import open_targets as open_targets  # who ends begins with it
from acpmux.host.timers import Timers

LOOK_S = 0.02  # between looks at those that could not be opened
CUT_GRACE_S = 0.3  # once somebody waits for the session, this is all the grace that is left
Outcome = list[tuple[int, int, str, str]]


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
        self._waiting = targets.copy()
        self._selector = selector
        self._timers = timers
        self._done = done
        self._killed = False
        self._outcome: Outcome = []
        for target in targets:
            if target.opened:
                selector.register(target.fd, selectors.EVENT_READ, self._told_gone(target))
        self._timer = timers.after(grace_s, self._kill)
        timers.after(0, self._look)
        if not targets:
            timers.after(0, self._finish)

    def cut(self) -> None:
        """Somebody waits now: 300 ms is all the grace that is left."""
        if not self._killed:
            self._timers.cancel(self._timer)
            self._timer = self._timers.after(min(CUT_GRACE_S, self._timers.left(self._timer)), self._kill)

    def _told_gone(self, target: Target) -> Callable[[selectors.SelectorKey, int], None]:
        return lambda _key, _mask: self._gone(target)

    def _gone(self, target: Target) -> None:
        self._waiting.remove(target)
        if target.opened:
            self._selector.unregister(target.fd)
            close([target])
        how = "kill" if self._killed else "term"
        self._outcome.append((target.identity.pid, target.identity.start, target.command, how))
        if not self._waiting:
            self._finish()

    def _look(self) -> None:
        """Those without a descriptor don't tell when they go."""
        unopened = [target for target in self._waiting if not target.opened]
        if unopened:
            self._timers.after(LOOK_S, self._look)
        for target in unopened:
            if target.gone:
                self._gone(target)

    def _kill(self) -> None:
        self._killed = True
        for target in self._waiting:
            send(target, signal.SIGKILL)

    def _finish(self) -> None:
        self._timers.cancel(self._timer)
        self._done(sorted(self._outcome))
