"""Finding the daemon, and starting it when there is none."""

import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from acpmux import places
from acpmux.client.connection import Connection
from acpmux.errors import DaemonUnreachable

if TYPE_CHECKING:
    import subprocess

START_BUDGET_S = 20.0  # a cold Python, the store, and the end of what an earlier daemon left (up to 15 s)
POLL_S = 0.02
AGAIN_S = 1.0  # an ending daemon lets its lock go within moments; one that starts would only meet more of its kind


def connect(start: bool = True) -> Connection:
    """A connection to this user's daemon, started when there is none and `start` is true.

    Raises: DaemonUnreachable, with the end of the daemon's own words when it did not come up.
    """
    home = places.home_of(os.environ)
    path = os.environ.get("ACPMUX_SOCKET") or places.socket_of(home)  # inside a harness it names its daemon
    try:
        return Connection(path)
    except DaemonUnreachable:
        second = places.nameless(home)
        if second is not None and "ACPMUX_SOCKET" not in os.environ and not os.path.exists(path):
            try:
                return Connection(second)  # somebody took the socket's file away
            except DaemonUnreachable:
                pass
        if not start or "ACPMUX_SOCKET" in os.environ:
            raise DaemonUnreachable(f"no daemon answers on {path}. Start one: acpmux daemon start") from None
    return _started(home, path)


def connect_soon() -> Connection:
    """A connection to the daemon of this home, which a service manager is starting. Raises: DaemonUnreachable."""
    path = places.socket_of(places.home_of(os.environ))
    connection = _arrival(path)
    if connection is None:
        raise DaemonUnreachable(f"no daemon answers on {path} after {START_BUDGET_S:g} s")
    return connection


def _started(home: str, path: str) -> Connection:
    """By its service if one is installed, so that its unit and not this terminal holds the agents. Else by itself.

    Two clients may do this at once, also while an earlier daemon ends. A daemon that finds the lock taken goes; if
    nobody answers a moment later, the one that held it was about to end.
    """
    from acpmux.client import service
    from acpmux.paths import Paths

    if service.begin(home):
        connection = _arrival(path)
        if connection is not None:
            return connection
    Paths.find(os.environ).prepare()
    output = os.path.join(home, "logs", "daemon.out")
    process, again_at = _run(home, output), time.monotonic() + AGAIN_S

    def goes_on() -> bool:
        nonlocal process, again_at
        if process.poll() == 0 and time.monotonic() > again_at:
            process, again_at = _run(home, output), time.monotonic() + AGAIN_S
        return process.poll() in (None, 0)

    connection = _arrival(path, goes_on)
    if connection is None:
        raise DaemonUnreachable(f"the daemon did not come up: {_tail(output)}")
    if process.poll() is None and connection.peer_pid not in (None, process.pid):
        process.terminate()  # ours came too late, and must not take over when that one ends
    return connection


def _run(home: str, output: str) -> "subprocess.Popen[bytes]":
    import subprocess  # only here: a daemon that runs already is the usual case

    env = dict(os.environ)
    if env.get("ACPMUX_HOME"):
        env["ACPMUX_HOME"] = home  # it may be a relative path, and the daemon is in another folder
    with os.fdopen(os.open(output, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "wb") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "acpmux", "daemon", "run"],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            cwd="/",
            env=env,
            start_new_session=True,
        )


def _arrival(path: str, goes_on: Callable[[], bool] = lambda: True) -> Connection | None:
    """The connection to a daemon that is starting; None when it does not go on or takes too long."""
    deadline = time.monotonic() + START_BUDGET_S
    while time.monotonic() < deadline:
        try:
            return Connection(path)
        except DaemonUnreachable:
            if not goes_on():
                break
            time.sleep(POLL_S)
    return None


def _tail(output: str) -> str:
    try:
        with open(output, encoding="utf-8", errors="replace") as file:
            lines = file.read().strip().splitlines()
    except OSError:
        lines = []
    lines = [line.removeprefix("acpmux: ") for line in lines]
    return f"{' / '.join(lines[-3:])[:500]}" if lines else f"it said nothing; see {os.path.dirname(output)}/daemon.log"
