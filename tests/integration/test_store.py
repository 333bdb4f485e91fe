"""The log on a real file: the contract of `ports.EventLog`, and what a crash leaves."""

import asyncio
import os
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from acpmux.errors import StoreError
from acpmux.model.ids import AgentSessionId, PromptId, Seq, SessionId
from acpmux.model.record import Kind, Record, Stored
from acpmux.model.session import Checkpoint, Prompt, State, Turn
from acpmux.ports import EventLog
from acpmux.store.log import SqliteLog
from kit.memory_log import MemoryLog

S1 = SessionId("s1")
CHECKPOINT = Checkpoint(S1, "one", "demo", "/tmp", 1, 2, state=State.READY, agent_session_id=AgentSessionId("a"), queue=(Prompt(PromptId("p"), b"[1]", 5),), turn=Turn(Prompt(PromptId("q"), b"[]", 6), asked=2))  # fmt: skip


def stored(seq: int, kind: Kind = Kind.UPDATE, body: bytes = b"{}", prompt_id: str | None = None) -> Stored:
    return Stored(Seq(seq), Record(kind, body, "cause", seq, prompt_id))


def over(path: Path, work: Callable[[EventLog], Awaitable[None]]) -> None:
    async def both() -> None:
        await work(MemoryLog())
        log = await SqliteLog.open(path)
        try:
            await work(log)
        finally:
            await log.close()

    asyncio.run(both())


def test_what_was_committed_is_read_back_untouched(tmp_path: Path) -> None:
    async def work(log: EventLog) -> None:
        odd = b'{"n":123456789012345678901234567890,"s":"\\ud800"}'
        await log.commit(S1, [stored(1, body=odd), stored(2, Kind.PROMPTED, prompt_id="p")], CHECKPOINT)
        await log.commit(S1, [stored(3, prompt_id="p")], None)
        assert [row.record.body for row in await log.read(S1, Seq(0), 1)] == [odd]
        assert [row.seq for row in await log.read(S1, Seq(1), 10)] == [2, 3]
        assert [row.seq for row in await log.read_prompt(S1, PromptId("p"))] == [2, 3]
        assert [row.seq for row in await log.read_kinds(S1, [Kind.UPDATE], 1)] == [3]
        assert await log.checkpoints() == [(CHECKPOINT, 3)]
        assert await log.last_seq(S1) == 3
        await log.purge(S1)
        assert await log.checkpoints() == [] and await log.read(S1, Seq(0), 10) == []

    over(tmp_path / "a.db", work)


def test_a_gap_is_refused_and_stores_nothing(tmp_path: Path) -> None:
    async def work(log: EventLog) -> None:
        await log.commit(S1, [stored(1)], CHECKPOINT)
        with pytest.raises(StoreError):
            await log.commit(S1, [stored(3)], None)
        assert await log.last_seq(S1) == 1

    over(tmp_path / "a.db", work)


def test_a_reader_that_was_cancelled_harms_nobody(tmp_path: Path) -> None:
    async def work() -> None:
        log = await SqliteLog.open(tmp_path / "a.db")
        await log.commit(S1, [stored(1)], CHECKPOINT)
        for _ in range(50):
            task = asyncio.ensure_future(log.read(S1, Seq(0), 10))
            await asyncio.sleep(0)
            task.cancel()
        await log.commit(S1, [stored(2)], None)
        assert await log.last_seq(S1) == 2
        await log.close()

    asyncio.run(work())


def test_one_failing_commit_among_many_fails_alone(tmp_path: Path) -> None:
    async def work() -> None:
        log = await SqliteLog.open(tmp_path / "a.db")
        commits = [log.commit(SessionId(f"s{n}"), [stored(2 if n == 3 else 1)], CHECKPOINT) for n in range(8)]
        done = await asyncio.gather(*commits, return_exceptions=True)
        assert [isinstance(one, StoreError) for one in done] == [n == 3 for n in range(8)]
        await log.close()

    asyncio.run(work())


def test_files_are_the_users_alone(tmp_path: Path) -> None:
    over(tmp_path / "a.db", lambda log: log.commit(S1, [stored(1)], CHECKPOINT))
    assert stat.S_IMODE((tmp_path / "a.db").stat().st_mode) == 0o600


def test_file_of_a_newer_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="newer acpmux"):
        asyncio.run(SqliteLog.open(path))
    assert path.read_bytes() == before


def test_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    path.write_bytes(b"not a database" * 100)
    with pytest.raises(StoreError, match=r"a\.db can't be opened"):
        asyncio.run(SqliteLog.open(path))


WRITER = """
import asyncio, sys
from pathlib import Path
from acpmux.model.record import *
from acpmux.model.session import Checkpoint
from acpmux.store.log import SqliteLog
async def main():
    log = await SqliteLog.open(Path(sys.argv[1]))
    for n in range(1, 100000):
        await log.commit("s1", [Stored(n, Record(Kind.UPDATE, b"x" * 100, "c", n))], Checkpoint("s1", "one", "demo", "/", n, n))
        print(n, flush=True)
asyncio.run(main())
"""


def test_every_acknowledged_commit_survives_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    for _ in range(5):
        path.unlink(missing_ok=True)
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        for line in writer.stdout:
            if int(line) >= 60:
                break
        os.kill(writer.pid, signal.SIGKILL)
        rest = writer.stdout.read()
        writer.stdout.close()
        writer.wait()
        acknowledged = int(rest.split()[-1]) if rest.split() else 60

        async def check(acknowledged: int = acknowledged) -> None:
            log = await SqliteLog.open(path)
            last = await log.last_seq(S1)
            assert acknowledged <= last <= acknowledged + 1
            assert [row.seq for row in await log.read(S1, Seq(0), 10**6)] == list(range(1, last + 1))
            ((checkpoint, seq),) = await log.checkpoints()
            assert checkpoint.created_at_ms == seq == last
            await log.close()

        asyncio.run(check())
