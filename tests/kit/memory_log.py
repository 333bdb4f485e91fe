"""`ports.EventLog` in memory, for tests of the engine; the same contract test runs over it and the real one."""

import asyncio
from collections.abc import Sequence

from acpmux.errors import StoreError
from acpmux.model.ids import NO_LINE, HostSeq, PromptId, Seq, SessionId
from acpmux.model.record import Kind, Stored
from acpmux.model.session import Checkpoint


class MemoryLog:
    """`fail_next` makes so many writes fail, as a full disk does; while `purging` is cleared, a removal takes its time."""

    def __init__(self) -> None:
        self.rows: dict[SessionId, list[Stored]] = {}
        self.saved: dict[SessionId, Checkpoint] = {}
        self.host_seqs: dict[SessionId, HostSeq] = {}
        self.fail_next = 0
        self.purging = asyncio.Event()
        self.purging.set()

    async def commit(
        self,
        session_id: SessionId,
        rows: Sequence[Stored],
        checkpoint: Checkpoint | None,
        host_seq: HostSeq = NO_LINE,
    ) -> None:
        if self.fail_next:
            self.fail_next -= 1
            raise StoreError("the disk is full")
        kept = self.rows.get(session_id, [])
        if [row.seq for row in rows] != list(range(len(kept) + 1, len(kept) + 1 + len(rows))):
            raise StoreError("a gap")
        if checkpoint is None and session_id not in self.saved:
            raise StoreError("a first commit without a checkpoint")
        self.rows[session_id] = [*kept, *rows]
        self.host_seqs[session_id] = host_seq
        if checkpoint is not None:
            self.saved[session_id] = checkpoint

    async def read(self, session_id: SessionId, after: Seq, limit: int) -> list[Stored]:
        return [row for row in self.rows.get(session_id, ()) if row.seq > after][:limit]

    async def read_prompt(self, session_id: SessionId, prompt_id: PromptId) -> list[Stored]:
        return [row for row in self.rows.get(session_id, ()) if row.record.prompt_id == prompt_id]

    async def read_kinds(self, session_id: SessionId, kinds: Sequence[Kind], last: int) -> list[Stored]:
        found = [row for row in self.rows.get(session_id, ()) if row.record.kind in kinds]
        return found[-last:] if last else []

    async def last_seq(self, session_id: SessionId) -> Seq:
        return Seq(len(self.rows.get(session_id, ())))

    async def host_seq(self, session_id: SessionId) -> HostSeq:
        return self.host_seqs.get(session_id, NO_LINE)

    async def checkpoints(self) -> list[tuple[Checkpoint, Seq]]:
        oldest_first = sorted(self.saved.items(), key=lambda item: (item[1].created_at_ms, item[0]))
        return [(saved, Seq(len(self.rows[key]))) for key, saved in oldest_first]

    async def purge(self, session_id: SessionId) -> None:
        await self.purging.wait()
        if self.fail_next:
            self.fail_next -= 1
            raise StoreError("the disk is full")
        self.rows.pop(session_id, None)
        self.saved.pop(session_id, None)
