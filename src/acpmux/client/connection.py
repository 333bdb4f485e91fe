"""A blocking JSON-RPC connection over the daemon's Unix socket.

No asyncio: a one-shot command starts in milliseconds.
"""

import json
import socket
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from acpmux.errors import AcpmuxError, BudgetSpent, DaemonUnreachable, Internal, by_code
from acpmux.untyped import as_object, parse_json

CHUNK_BYTES = 256 * 1024


class Notification(NamedTuple):
    """What the daemon says unasked; a request of the daemon's comes as one too, with its id in `request_id`."""

    method: str
    params: dict[str, Any]
    request_id: Any = None


class RemoteError(AcpmuxError):
    """An error that the daemon answered and that is none of its own kinds: an agent's."""


class Connection:
    """One connection. Not for use by two threads at once. `mend` changes every message before anybody sees it."""

    mend: Callable[[Any], Any] | None = None

    def __init__(self, path: str, budget_s: float = 5.0) -> None:
        """Raises: DaemonUnreachable when nobody accepts within the budget."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(budget_s)
        try:
            self._socket.connect(path)
        except OSError as error:
            self._socket.close()
            raise DaemonUnreachable(f"no daemon answers on {path}: {error.strerror or error}") from None
        self._buffer = bytearray()
        self._last = 0

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    @property
    def fd(self) -> int:
        """For a selector."""
        return self._socket.fileno()

    @property
    def peer_pid(self) -> int | None:
        """Who listens there (SO_PEERCRED, unix(7)); None where that is not told."""
        if not hasattr(socket, "SO_PEERCRED"):
            return None
        return int.from_bytes(self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)[:4], sys.byteorder)

    # ------------------------------------------------------------ asking

    def request(
        self,
        method: str,
        params: dict[str, Any],
        budget_s: float | None = None,
        hear: Callable[[Notification], None] | None = None,
    ) -> Any:
        """The result of one request; `hear` gets every notification that comes before it.

        Raises: the AcpmuxError the daemon answered; BudgetSpent after `budget_s` (None waits for ever);
        DaemonUnreachable.
        """
        request_id = self.send(method, params)
        deadline = None if budget_s is None else time.monotonic() + budget_s
        while True:
            told = self.receive(deadline)
            if "method" in told:
                if hear is not None:
                    hear(_notification(told))
            elif told.get("id") == request_id:
                return result_of(told)

    def send(self, method: str, params: dict[str, Any]) -> int:
        """Sends a request and returns its id, for `receive`."""
        self._last += 1
        self._write({"jsonrpc": "2.0", "id": self._last, "method": method, "params": params})
        return self._last

    def notify(self, method: str, params: dict[str, Any]) -> None:
        self._write({"jsonrpc": "2.0", "method": method, "params": params})

    def notification(self, deadline: float | None = None) -> Notification | None:
        """The next notification, None for an answer nobody waits for any more."""
        told = self.receive(deadline)
        return _notification(told) if "method" in told else None

    def receive(self, deadline: float | None = None) -> dict[str, Any]:
        """The next message, whatever it is. Raises: BudgetSpent, DaemonUnreachable."""
        while (end := self._buffer.find(b"\n")) < 0:
            self._fill(deadline)
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        try:
            told = parse_json(line)
            return as_object(told if Connection.mend is None else Connection.mend(told))
        except ValueError:
            return {}  # nested too deeply to be shown: neither an answer nor a word for anybody here

    def pending(self) -> bool:
        """True when a whole message is here already."""
        return b"\n" in self._buffer

    def _fill(self, deadline: float | None) -> None:
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            raise BudgetSpent(self._silence())
        self._socket.settimeout(left)
        try:
            data = self._socket.recv(CHUNK_BYTES)
        except TimeoutError:
            raise BudgetSpent(self._silence()) from None
        except OSError as error:
            raise DaemonUnreachable(f"the daemon hung up: {error.strerror or error}") from None
        if not data:
            raise DaemonUnreachable("the daemon hung up; its log says why. See: acpmux daemon status")
        self._buffer += data

    def _silence(self) -> str:
        """Why there may be no answer, and what to do: a daemon that is stopped (SIGSTOP) takes every request unread."""
        pid = self.peer_pid
        if pid is None:
            return "no answer in time"
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                state = file.read(4096).rpartition(b")")[2].split()[0]
        except (OSError, IndexError):
            state = b""
        if state in (b"T", b"t"):
            return f"the daemon (pid {pid}) is stopped and answers nobody. Let it go on: kill -CONT {pid}"
        return f"no answer in time from the daemon (pid {pid}); its log may say why: logs/daemon.log"

    def _write(self, told: dict[str, Any]) -> None:
        self._socket.settimeout(None)
        try:
            self._socket.sendall(json.dumps(told).encode() + b"\n")
        except OSError as error:
            raise DaemonUnreachable(f"the daemon hung up: {error.strerror or error}") from None


def _notification(told: dict[str, Any]) -> Notification:
    return Notification(told["method"], told.get("params") or {}, told.get("id"))


def result_of(told: dict[str, Any]) -> Any:
    """The result of an answer. Raises: the AcpmuxError it stands for."""
    if told.get("error") is None:
        return told.get("result")
    error = as_object(told["error"])
    data = as_object(error.get("data"))
    known = by_code().get(data.get("code", ""))
    kind = known if known is not None and known is not Internal else RemoteError
    raised = kind(error.get("message", "no message"), detail=data.get("detail"), session_id=data.get("sessionId"))
    raised.code = data.get("code") or "agent_error"
    raised.retryable = bool(data.get("retryable"))
    raised.blockers = data.get("blockers") or []
    raise raised
