"""JSON-RPC, a message a line, over two pipes: requests in, answers out, and the other way round."""

import json
import os
import queue
import sys
import threading
from typing import Any, BinaryIO, Protocol

from acpmux.untyped import as_object

LINE_BYTES = 64 * 1024 * 1024  # the limit every line reader of acpmux has

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
NOT_FOUND = -32002


class RpcError(Exception):
    """An error answer: what the caller did wrong or asked for in vain."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Handler(Protocol):
    """Who serves the other side."""

    def is_slow(self, method: str) -> bool:
        """True for a request that may take long: it is served beside the reader, which must stay free for a cancel."""
        ...

    def request(self, method: str, params: dict[str, Any]) -> Any:
        """The result of one request. Raises: RpcError."""
        ...

    def notification(self, method: str, params: dict[str, Any]) -> None: ...

    def answered(self, method: str, params: dict[str, Any], result: Any) -> None:
        """Called when the answer to a request has been written."""
        ...


class Peer:
    """One end of the line. Any thread may send; only `serve` reads."""

    def __init__(self, source: BinaryIO, sink: int) -> None:
        self._source = source
        self._sink = sink
        self._writing = threading.Lock()
        self._last_id = 0
        self._waiting: dict[int, queue.SimpleQueue[dict[str, Any]]] = {}

    def notify(self, method: str, params: dict[str, Any]) -> None:
        self._send({"method": method, "params": params})

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Sends a request and waits for its result, empty for an error.

        A person may answer it, so it waits without a limit.
        """
        with self._writing:
            self._last_id += 1
            own_id = self._last_id
        answer = self._waiting[own_id] = queue.SimpleQueue()
        self._send({"id": own_id, "method": method, "params": params})
        return as_object(answer.get().get("result"))

    def serve(self, handler: Handler) -> None:
        """Reads until the input ends. A line that is no message is answered as such and nothing else happens."""
        while line := self._source.readline(LINE_BYTES + 1):
            if len(line) > LINE_BYTES:
                sys.exit(f"a line is over {LINE_BYTES} bytes; the demo agent ends")
            if line.strip():
                self._take(line, handler)

    def _take(self, line: bytes, handler: Handler) -> None:
        try:
            message = as_object(json.loads(line))
        except (ValueError, RecursionError):
            self._fail(None, RpcError(PARSE_ERROR, "not JSON"))
            return
        method, params = message.get("method"), as_object(message.get("params"))
        if method is None and ("result" in message or "error" in message):
            waiting = self._waiting.pop(message["id"], None) if isinstance(message.get("id"), int) else None
            if waiting is not None:
                waiting.put(message)
        elif not isinstance(method, str):
            self._fail(message.get("id"), RpcError(INVALID_REQUEST, "no method"))
        elif "id" not in message:
            handler.notification(method, params)
        elif handler.is_slow(method):
            work = (message["id"], method, params, handler)
            threading.Thread(target=self._answer, args=work, name=method, daemon=True).start()
        else:
            self._answer(message["id"], method, params, handler)

    def _answer(self, request_id: Any, method: str, params: dict[str, Any], handler: Handler) -> None:
        try:
            result = handler.request(method, params)
        except RpcError as error:
            self._fail(request_id, error)
        except OSError as error:
            self._fail(request_id, RpcError(INTERNAL_ERROR, f"{method}: {error.strerror or error}"))
        else:
            self._send({"id": request_id, "result": result})
            handler.answered(method, params, result)

    def _fail(self, request_id: Any, error: RpcError) -> None:
        self._send({"id": request_id, "error": {"code": error.code, "message": error.message}})

    def _send(self, message: dict[str, Any]) -> None:
        """Straight to the descriptor: a buffered stream could be held by a thread when the program ends."""
        data = json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode() + b"\n"
        with self._writing:
            try:
                while data:
                    data = data[os.write(self._sink, data) :]
            except BrokenPipeError:
                pass  # nobody listens any more; the reader meets the end of its input and ends the program
