"""One client. It waits for nobody, and nobody waits for it."""

import asyncio
import itertools
import json
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from acpmux.errors import AcpmuxError, Internal
from acpmux.hub.actor import Actor
from acpmux.hub.feed import Feed
from acpmux.model.ids import ClientId, Seq, SessionId
from acpmux.model.record import Kind, Stored
from acpmux.rules import messages as m
from acpmux.runtime.tasks import Tasks
from acpmux.server.follow import Follow
from acpmux.untyped import as_object, parse_json
from acpmux.wire import framing, jsonrpc, mux

if TYPE_CHECKING:
    from acpmux.server.methods import Methods

CHUNK_BYTES = 256 * 1024
FEED_RECORDS = 256  # a page of the log at a time; a slow client holds no more than this in memory
REQUESTS = 256  # of one client that wait for their answer, or whose answer waits for it; more are not read yet

log = logging.getLogger(__name__)
_numbers = itertools.count(1)


class Connection:
    """Reads requests in order, answers each when it is ready, and feeds what is followed at the client's own speed.

    A client that asks and does not take its answers is read no further than `REQUESTS` of them.
    """

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, methods: "Methods", tasks: Tasks
    ) -> None:
        self.client_id = ClientId(f"c{next(_numbers)}")
        self.asks_itself = False  # an ACP client that loaded a session is asked its permissions by request
        self._reader = reader
        self._writer = writer
        self._methods = methods
        self._tasks = tasks
        self._sending = asyncio.Lock()
        self._open = 0
        self._closed_one = asyncio.Event()
        self._follows: dict[SessionId, Follow] = {}
        self._asked: dict[bytes, tuple[Actor, str]] = {}
        self._ids = itertools.count(1)

    # ------------------------------------------------------------ in

    async def run(self) -> None:
        """Serves until the client hangs up."""
        lines = framing.LineReader()
        try:
            while data := await self._reader.read(CHUNK_BYTES):
                dropped = lines.dropped
                for line in lines.feed(data):
                    while self._open >= REQUESTS:
                        self._closed_one.clear()
                        await self._closed_one.wait()
                    self._take(line)
                if lines.dropped > dropped:
                    limit = framing.MAX_LINE_BYTES
                    await self._send(
                        jsonrpc.encode_error(b"null", -32600, f"a message of over {limit} bytes was dropped")
                    )
        except ConnectionError:
            pass
        finally:
            for session_id in tuple(self._follows):
                self.unfollow(session_id)
            await self._methods.bundles.drop(self.client_id)

    def hang_up(self) -> None:
        self._writer.close()

    def _take(self, line: bytes) -> None:
        """Starts what a line asks; whatever goes to one session reaches its mailbox in the order of the lines."""
        try:
            message = jsonrpc.decode(line)
        except jsonrpc.NotAMessage as error:
            self._start(self._send(jsonrpc.encode_error(b"null", -32700, f"not a JSON-RPC message: {error}")))
            return
        match message:
            case jsonrpc.Request(request_id, method, params):
                # a task runs its first part before the next line's, up to where it has told the mailbox
                self._start(self._answer(request_id, method, params))
            case jsonrpc.Notification(method, params):
                try:
                    self._methods.notified(self, method, params)
                except AcpmuxError as error:
                    log.info("notification refused method=%s code=%s", method[:60], error.code)
            case jsonrpc.Response(request_id, ok, payload):
                self._answered(request_id, ok, payload)

    def _start(self, work: Any) -> None:
        self._open += 1
        self._tasks.spawn(f"client:{self.client_id}", work).add_done_callback(self._one_less)

    def _one_less(self, _: object) -> None:
        self._open -= 1
        self._closed_one.set()

    async def _answer(self, request_id: bytes, method: str, params: bytes) -> None:
        try:
            reply = await self._methods.call(self, method, params)
            line = jsonrpc.encode_result(request_id, reply)
        except AcpmuxError as error:
            line = jsonrpc.encode_error(request_id, error.rpc_code, error.message, mux.error_data(error))
        except RawError as error:
            line = jsonrpc.encode_raw_error(request_id, error.payload)
        except Exception:  # the door of a connection: a fault of ours fails one request, not the daemon
            log.exception("request broke method=%s", method[:60])
            error = Internal("acpmux failed on this request; its log says more")
            line = jsonrpc.encode_error(request_id, error.rpc_code, error.message, mux.error_data(error))
        await self._send(line)

    # ------------------------------------------------------------ out

    async def _send(self, line: bytes) -> None:
        """Waits while the client does not read: only what is for this client waits."""
        async with self._sending:
            try:
                self._writer.write(line + b"\n")
                await self._writer.drain()
            except ConnectionError:
                return

    # ------------------------------------------------------------ following a session

    def follow(self, actor: Actor, after: Seq, attach: bool) -> Follow:
        """Feeds every record above `after`, from now on. Following again begins anew; attaching is kept."""
        old = self._follows.get(actor.session_id)
        if old is not None:
            old.stop()
        follow = Follow(
            Feed(actor.log, actor.session_id, actor.bell, after), attach or (old is not None and old.attached)
        )
        self._follows[actor.session_id] = follow
        follow.task = self._tasks.spawn(f"feed:{self.client_id}", self._feed(actor, follow))
        if attach:
            actor.tell(m.ClientAttached(self.client_id))
        return follow

    def unfollow(self, session_id: SessionId) -> None:
        follow = self._follows.pop(session_id, None)
        if follow is not None:
            follow.stop()
            if follow.attached:
                self._methods.detached(session_id, self.client_id)

    def attached_to(self, session_id: SessionId) -> bool:
        follow = self._follows.get(session_id)
        return follow is not None and follow.attached

    async def passed(self, session_id: SessionId, seq: Seq) -> None:
        """Returns when this client has been sent everything up to `seq`, or does not follow the session."""
        follow = self._follows.get(session_id)
        if follow is not None:
            await follow.passed(seq)

    async def _feed(self, actor: Actor, follow: Follow) -> None:
        while True:
            rows = await follow.feed.next(FEED_RECORDS)
            waiting, size_bytes = list[bytes](), 0
            for row in rows:
                line = _message(actor.session_id, row)
                waiting.append(line)
                size_bytes += len(line)
                asks = row.record.kind in (Kind.ASK_OPENED, Kind.ASK_RESOLVED)
                if asks or size_bytes > CHUNK_BYTES:  # else many go in one write
                    await self._send(b"\n".join(waiting))
                    waiting, size_bytes = [], 0
                if asks:
                    await self._tell_ask(actor, follow, row)
            if waiting:
                await self._send(b"\n".join(waiting))
            follow.sent(rows[-1].seq)

    # ------------------------------------------------------------ asks

    async def _tell_ask(self, actor: Actor, follow: Follow, row: Stored) -> None:
        body = parse_json(row.record.body)
        checkpoint = actor.session.checkpoint
        opened = row.record.kind is Kind.ASK_OPENED
        told = {
            key: body[key] for key in (("askId", "kind", "title", "options") if opened else ("askId", "optionId", "by"))
        }
        told |= {"sessionId": actor.session_id, "name": checkpoint.name}
        method = "_acpmux/ask_pending" if opened else "_acpmux/ask_resolved"
        await self._send(jsonrpc.encode_notification(method, json.dumps(told).encode()))
        if not (follow.attached and self.asks_itself):
            return
        if opened and any(ask.ask_id == body["askId"] for ask in checkpoint.asks):
            request_id = json.dumps(f"ask-{next(self._ids)}").encode()
            self._asked[request_id] = (actor, body["askId"])
            params = mux.acp.replace_session_id(json.dumps(body["params"]).encode(), actor.session_id)
            await self._send(jsonrpc.encode_request(request_id, "session/request_permission", params))
        elif not opened:
            await self._withdraw(body["askId"])

    async def _withdraw(self, ask_id: str) -> None:
        """Somebody else was first: this client's own question is taken back under its own id."""
        for request_id, (_, asked) in tuple(self._asked.items()):
            if asked == ask_id:
                del self._asked[request_id]
                params = b'{"requestId":' + request_id + b"}"
                await self._send(jsonrpc.encode_notification("$/cancel_request", params))

    def _answered(self, request_id: bytes, ok: bool, payload: bytes) -> None:
        """A client's answer to a question; one that comes too late is dropped."""
        asked = self._asked.pop(request_id, None)
        if asked is None:
            return
        actor, ask_id = asked
        outcome = as_object(as_object(parse_json(payload)).get("outcome")) if ok else {}
        chosen = outcome.get("optionId")
        choice = chosen if isinstance(chosen, str) else "cancelled"
        self._start(self._methods.answer(actor, ask_id, choice, str(self.client_id)))


def _message(session_id: SessionId, row: Stored) -> bytes:
    """A record that can't be shown as an update is shown as an event: one bad record keeps nothing behind it back."""
    try:
        return mux.record_message(session_id, row)
    except Exception:
        log.exception("record not shown as it is session=%s seq=%d", session_id, row.seq)
        body = json.dumps(row.record.body.decode("utf-8", "replace")).encode()
        event = mux.event(session_id, replace(row, record=replace(row.record, body=body)))
        return jsonrpc.encode_notification("_acpmux/event", event)


class RawError(Exception):
    """An error object of the harness, handed on untouched."""

    def __init__(self, payload: bytes) -> None:
        super().__init__("the agent answered with an error")
        self.payload = payload
