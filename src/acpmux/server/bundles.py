"""`_acpmux/export` and `_acpmux/import`, a page of records at a time."""

from typing import Any

import msgspec

from acpmux.errors import UsageFault
from acpmux.hub import bundle as bundles
from acpmux.hub.hub import Hub
from acpmux.model.ids import ClientId, Seq
from acpmux.wire import bundle, mux


class Bundles:
    """At most one import a client; one that is not whole when its client goes is taken back."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._imports: dict[ClientId, bundles.Import] = {}

    async def export(self, client_id: ClientId, params: bytes) -> bytes:
        """{lines, lastSeq, next}: the bundle's lines as texts, its head before record 1, up to `lastSeq` when given."""
        told = mux.parse(params, mux.ExportParams)
        actor = self._hub.find(told.session_id)
        head = bundles.head_of(actor)
        last = head.last_seq if told.last_seq is None else told.last_seq
        rows = await actor.log.read(actor.session_id, Seq(told.after_seq), mux.EVENTS_LIMIT)
        rows = [row for row in rows if row.seq <= last]
        lines = [] if told.after_seq else [msgspec.json.encode(head)]
        lines += [bundle.encode_record(row) for row in rows]
        texts = [line.decode("utf-8", "replace") for line in lines]
        next_seq = rows[-1].seq if rows else last
        return msgspec.json.encode({"lines": texts, "lastSeq": last, "next": next_seq})

    async def take(self, client_id: ClientId, params: bytes) -> Any:
        """A head begins, records follow, `done` ends: {sessionId, name, servers} then. A fault takes all of it back."""
        told = mux.parse(params, mux.ImportParams)
        try:
            if told.session is not None:
                await self.drop(client_id)
                head = bundle.decode_head(told.session.encode())
                self._imports[client_id] = self._hub.begin_import(head, told.name, told.cwd)
            coming = self._imports.get(client_id)
            if coming is None:
                raise UsageFault("an import begins with the bundle's session")
            await coming.take([record.encode() for record in told.records])
            if not told.done:
                return {"lastSeq": coming.seq}
            actor = await self._hub.finish_import(coming)
            del self._imports[client_id]
            name = actor.session.checkpoint.name
            return {"sessionId": actor.session_id, "name": name, "servers": coming.head.servers}
        except BaseException:
            await self.drop(client_id)
            raise

    async def drop(self, client_id: ClientId) -> None:
        """Nothing is left of an import that is not whole."""
        coming = self._imports.pop(client_id, None)
        if coming is not None:
            await coming.log.purge(coming.session_id)
