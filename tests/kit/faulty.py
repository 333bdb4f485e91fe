"""Any port, with one call that fails: run a story with `fail_at` 0 to count its calls, then with each number."""

import inspect
from collections.abc import Callable
from typing import Any


class Faulty:
    """Wraps `port`. Call number `fail_at` (from 1) raises what `fault` makes and never reaches it; all others pass.

    `only` counts and fails the calls of these methods alone.
    """

    def __init__(self, port: Any, fail_at: int, fault: Callable[[], Exception], only: tuple[str, ...] = ()) -> None:
        self.port = port
        self.calls = 0
        self._fail_at = fail_at
        self._fault = fault
        self._only = only

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.port, name)
        if not callable(found) or (self._only and name not in self._only):
            return found
        if inspect.iscoroutinefunction(found):

            async def wait(*args: Any, **named: Any) -> Any:
                self._count()
                return await found(*args, **named)

            return wait

        def call(*args: Any, **named: Any) -> Any:
            self._count()
            return found(*args, **named)

        return call

    def _count(self) -> None:
        self.calls += 1
        if self.calls == self._fail_at:
            raise self._fault()
