"""The log on a real file: the contract of `ports.EventLog`, and what a crash leaves."""

import asyncio
import json
import os
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from acpmux.errors import StoreError, Unstorable
from acpmux.model.ids import AgentSessionId, PromptId, Seq, SessionId
from acpmux.model.record import Kind, Record, Stored
from acpmux.model.session import Checkpoint, Prompt, State, Turn
from acpmux.ports import EventLog
from acpmux.store.check import faults, kept_aside
from acpmux.store.connect import connect_reader, connect_writer
from acpmux.store.log import PAGE_BYTES, PROMPT_SQL, SqliteLog, kinds_sql
from acpmux.store.readers import READERS
from acpmux.store.salvage import mark
from acpmux.store.writer import Work, Writer
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


def on_disk(path: Path, work: Callable[[SqliteLog], Awaitable[None]]) -> None:
    async def alone() -> None:
        log = await SqliteLog.open(path)
        try:
            await work(log)
        finally:
            await log.close()

    asyncio.run(alone())


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


@pytest.mark.parametrize("seqs", [(3,), (2, 4), (1,), (2, 2), (3, 2)])
def test_a_gap_or_a_repeat_is_refused_and_stores_nothing(tmp_path: Path, seqs: tuple[int, ...]) -> None:
    async def work(log: EventLog) -> None:
        await log.commit(S1, [stored(1)], CHECKPOINT)
        with pytest.raises(StoreError):
            await log.commit(S1, [stored(seq) for seq in seqs], replace(CHECKPOINT, title="not stored"))
        assert await log.last_seq(S1) == 1 and len(await log.read(S1, Seq(0), 10)) == 1
        assert await log.checkpoints() == [(CHECKPOINT, 1)]

    over(tmp_path / "a.db", work)


def test_a_session_begins_with_its_checkpoint(tmp_path: Path) -> None:
    async def work(log: EventLog) -> None:
        with pytest.raises(StoreError):
            await log.commit(S1, [stored(1)], None)
        assert await log.read(S1, Seq(0), 10) == [] and await log.last_seq(S1) == 0
        await log.commit(S1, [], CHECKPOINT)
        await log.commit(S1, [stored(1)], None)
        assert await log.checkpoints() == [(CHECKPOINT, 1)]

    over(tmp_path / "a.db", work)


def test_sessions_come_oldest_first_and_keep_to_themselves(tmp_path: Path) -> None:
    async def work(log: EventLog) -> None:
        for name, created in (("b", 20), ("c", 10), ("a", 30)):
            checkpoint = replace(CHECKPOINT, session_id=SessionId(name), created_at_ms=created)
            await log.commit(SessionId(name), [stored(1, prompt_id="p")], checkpoint)
        assert [saved.session_id for saved, _ in await log.checkpoints()] == ["c", "b", "a"]
        await log.purge(SessionId("b"))
        assert [saved.session_id for saved, _ in await log.checkpoints()] == ["c", "a"]
        assert len(await log.read_prompt(SessionId("a"), PromptId("p"))) == 1

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


def test_what_the_file_cannot_hold_fails_alone_and_the_log_lives_on(tmp_path: Path) -> None:
    async def work(log: SqliteLog) -> None:
        await log.commit(S1, [stored(1)], CHECKPOINT)
        huge = Stored(Seq(2), Record(Kind.UPDATE, b"{}", "cause", 2**70))
        half = replace(CHECKPOINT, title="\ud800")
        odd = Stored(Seq(2), Record(Kind.UPDATE, b"{}", "\ud800", 1))
        for rows, checkpoint in (([huge], None), ([], half), ([odd], None)):
            with pytest.raises(Unstorable, match="can't be written"):
                await log.commit(S1, rows, checkpoint)
        await log.commit(S1, [stored(2)], None)
        assert await log.checkpoints() == [(CHECKPOINT, 2)]

    on_disk(tmp_path / "a.db", work)


def test_a_page_ends_behind_the_record_that_fills_it(tmp_path: Path) -> None:
    async def work(log: SqliteLog) -> None:
        body = b"x" * (PAGE_BYTES // 2)
        await log.commit(S1, [stored(seq, body=body) for seq in (1, 2, 3)], CHECKPOINT)
        assert [row.seq for row in await log.read(S1, Seq(0), 100)] == [1, 2]
        assert [row.seq for row in await log.read(S1, Seq(2), 100)] == [3]

    on_disk(tmp_path / "a.db", work)


def test_three_readers_keep_less_than_a_megabyte_of_what_they_read(tmp_path: Path) -> None:
    with closing(connect_writer(tmp_path / "log.db")), closing(connect_reader(tmp_path / "log.db")) as db:
        assert 0 < -db.execute("PRAGMA cache_size").fetchone()[0] * READERS < 1000


def test_prompt_and_rare_kinds_are_found_in_a_long_log_as_fast_as_in_a_short_one(tmp_path: Path) -> None:
    steps: list[list[int]] = []
    for count in (50, 2000):
        path = tmp_path / f"{count}.db"

        async def fill(path: Path = path, count: int = count) -> None:
            log = await SqliteLog.open(path)
            rows = [
                stored(seq, Kind.PROMPTED if seq == 7 else Kind.UPDATE, prompt_id=f"p{seq}") for seq in range(1, count)
            ]
            await log.commit(S1, rows, CHECKPOINT)
            await log.close()

        asyncio.run(fill())
        asked = ((PROMPT_SQL, (S1, "p7")), (kinds_sql(2), (S1, 5, Kind.PROMPTED.value, Kind.EXITED.value)))
        with closing(connect_reader(path)) as db:
            steps.append([_steps(db, sql, values) for sql, values in asked])
    assert all(in_long <= in_short * 2 for in_short, in_long in zip(*steps, strict=True))


def _steps(db: sqlite3.Connection, sql: str, values: tuple[object, ...]) -> int:
    """How many steps of SQLite's machine one query takes; it finds one record."""
    taken: list[None] = []
    db.set_progress_handler(lambda: taken.append(None), 1)
    assert len(db.execute(sql, values).fetchall()) == 1
    db.set_progress_handler(None, 1)
    return len(taken)


def test_record_of_50_mb_comes_back_whole(tmp_path: Path) -> None:
    async def work(log: SqliteLog) -> None:
        body = os.urandom(1_000_000) * 50
        await log.commit(S1, [stored(1, body=body)], CHECKPOINT)
        assert (await log.read(S1, Seq(0), 100))[0].record.body == body

    on_disk(tmp_path / "a.db", work)


def test_reads_wait_for_no_writer_and_writes_for_no_reader(tmp_path: Path) -> None:
    path = tmp_path / "a.db"

    async def work(log: SqliteLog) -> None:
        await log.commit(S1, [stored(1)], CHECKPOINT)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            waits = asyncio.ensure_future(log.commit(S1, [stored(2)], None))
            assert len(await log.read(S1, Seq(0), 10)) == 1
            assert not waits.done()
            other.execute("ROLLBACK")
            await waits
            other.execute("BEGIN")
            assert other.execute("SELECT count(*) FROM records").fetchone() == (2,)
            await log.commit(S1, [stored(3)], None)
            assert other.execute("SELECT count(*) FROM records").fetchone() == (2,)
            assert await log.last_seq(S1) == 3

    on_disk(path, work)


def test_what_was_committed_is_read_by_whoever_reads_next(tmp_path: Path) -> None:
    async def work(log: SqliteLog) -> None:
        async def session(number: int) -> None:
            session_id = SessionId(f"s{number}")
            for seq in range(1, 21):
                await log.commit(session_id, [stored(seq)], replace(CHECKPOINT, session_id=session_id))
                assert [row.seq for row in await log.read(session_id, Seq(0), 100)] == list(range(1, seq + 1))

        await asyncio.gather(*(session(number) for number in range(8)))

    on_disk(tmp_path / "a.db", work)


def test_closed_log_does_what_was_asked_and_refuses_what_comes_after(tmp_path: Path) -> None:
    async def work() -> None:
        log = await SqliteLog.open(tmp_path / "a.db")
        asked = asyncio.ensure_future(log.commit(S1, [stored(1)], CHECKPOINT))
        await asyncio.sleep(0)
        await log.close()
        await asked
        refused = (
            log.commit(S1, [stored(2)], None),
            log.read(S1, Seq(0), 1),
            log.last_seq(S1),
            log.checkpoints(),
            log.purge(S1),
        )
        for one in await asyncio.gather(*refused, return_exceptions=True):
            assert isinstance(one, StoreError) and "is closed" in one.message
        await log.close()

    asyncio.run(work())


def test_prompt_waits_for_the_disk_and_an_agents_update_alone_does_not(tmp_path: Path) -> None:
    async def story() -> list[int]:
        writer, seen = Writer(tmp_path / "a.db"), list[int]()
        await writer.open()
        for firm in (True, False, True):
            await writer.do(lambda db: seen.append(db.execute("PRAGMA synchronous").fetchone()[0]), firm)
        await writer.close()
        return seen

    assert asyncio.run(story()) == [2, 1, 2]  # FULL, NORMAL, FULL (sqlite.org/pragma.html)


@pytest.mark.parametrize(("kind", "firm"), [(Kind.PROMPTED, True), (Kind.UPDATE, False), (Kind.ASK_OPENED, True)])
def test_only_updates_are_soft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Kind, firm: bool) -> None:
    asked: list[bool] = []
    do = Writer.do

    async def noting(self: Writer, work: Work, firm: bool = True) -> None:
        asked.append(firm)
        await do(self, work, firm)

    async def story() -> None:
        log = await SqliteLog.open(tmp_path / "a.db")
        first = Checkpoint(SessionId("s"), "n", "demo", "/", 1, 1)
        await log.commit(first.session_id, [], first)
        await log.commit(first.session_id, [Stored(Seq(1), Record(kind, b"{}", "c", 1))], None)
        await log.close()

    monkeypatch.setattr(Writer, "do", noting)
    asyncio.run(story())
    assert asked == [True, firm]


def test_files_are_the_users_alone(tmp_path: Path) -> None:
    async def work(log: SqliteLog) -> None:
        await log.commit(S1, [stored(1)], CHECKPOINT)
        assert sorted(path.name for path in tmp_path.glob("a.db*")) == ["a.db", "a.db-shm", "a.db-wal"]
        assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.glob("a.db*")} == {0o600}

    umask = os.umask(0)
    try:
        on_disk(tmp_path / "a.db", work)
    finally:
        os.umask(umask)


def test_checkpoint_of_an_older_version_is_filled_and_one_that_is_damaged_is_named_and_not_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a.db"
    on_disk(path, lambda log: log.commit(S1, [stored(1)], CHECKPOINT))

    def put(encoded: bytes) -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute("UPDATE sessions SET checkpoint = ?", (encoded,))

    async def older(log: SqliteLog) -> None:
        ((checkpoint, _),) = await log.checkpoints()
        assert (checkpoint.name, checkpoint.state, checkpoint.queue) == ("one", State.HIBERNATED, ())

    async def damaged(log: SqliteLog) -> None:
        assert await log.checkpoints() == []
        assert "not served session=s1" in caplog.text

    known = b'"session_id":"s1","name":"one","agent":"demo","cwd":"/","created_at_ms":1,"last_active_at_ms":2'
    put(b"{" + known + b',"of_a_later_time":[1]}')
    on_disk(path, older)
    for encoded in (b"{", b"\xff", b"{" + known + b',"state":"flying"}', b"{" + known + b',"queue":7}'):
        put(encoded)
        on_disk(path, damaged)


def session(number: int) -> tuple[SessionId, Checkpoint]:
    session_id = SessionId(f"s{number}")
    return session_id, replace(CHECKPOINT, session_id=session_id, name=f"n{number}", created_at_ms=number)


def fill(path: Path) -> None:
    """Three sessions whose records take turns in the file."""

    async def work(log: SqliteLog) -> None:
        for number in range(3):
            session_id, checkpoint = session(number)
            told = json.dumps({"name": f"n{number}", "agent": "demo", "cwd": "/tmp"}).encode()
            await log.commit(session_id, [stored(1, Kind.CREATED, told)], checkpoint)
        for seq in range(2, 300):
            for number in range(3):
                await log.commit(session(number)[0], [stored(seq, body=f"{seq}".encode() * 60)], None)

    on_disk(path, work)


def damage(path: Path, *pages: int) -> None:
    with path.open("r+b") as file:
        for page in pages:
            file.seek(page * 4096)
            file.write(b"\x5a" * 4096)


def test_damage_in_the_middle_costs_the_records_that_lay_there_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    fill(path)
    whole = path.stat().st_size // 4096
    damage(path, *range(whole // 2, whole // 2 + 4))
    before = path.read_bytes()
    assert faults(path) != []
    mark(path)

    async def work(log: SqliteLog) -> None:
        assert [checkpoint for checkpoint, _ in await log.checkpoints()] == [session(number)[1] for number in range(3)]
        lost = 0
        for number in range(3):
            rows = await log.read(session(number)[0], Seq(0), 1000)
            assert [row.seq for row in rows] == list(range(1, 300))
            notes = [row for row in rows if b"_acpmux/damaged" in row.record.body]
            lost += len(notes)
            kept = [row for row in rows[1:] if row not in notes]
            assert all(row.record.body == f"{row.seq}".encode() * 60 for row in kept)
        assert 0 < lost < 450
        await log.commit(session(0)[0], [stored(300)], None)

    on_disk(path, work)
    assert faults(path) == []
    (aside,) = kept_aside(path)
    assert aside.read_bytes() == before and stat.S_IMODE(aside.stat().st_mode) == 0o600
    on_disk(path, lambda log: log.commit(session(0)[0], [stored(301)], None))
    assert kept_aside(path) == [aside]


def test_session_that_has_lost_its_state_is_closed_and_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    fill(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("DELETE FROM sessions WHERE session_id = 's1'")
    assert faults(path) == ["records belong to no session: s1"]
    mark(path)

    async def work(log: SqliteLog) -> None:
        found = {checkpoint.session_id: checkpoint for checkpoint, _ in await log.checkpoints()}
        assert found[SessionId("s1")].state is State.CLOSED and found[SessionId("s1")].name == "n1-salvaged"
        assert len(await log.read(SessionId("s1"), Seq(0), 1000)) == 299

    on_disk(path, work)


def test_read_that_meets_damage_names_the_file_and_has_the_next_start_salvage_it(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    fill(path)
    whole = path.stat().st_size // 4096
    damage(path, *range(8, whole))

    async def work(log: SqliteLog) -> None:
        with pytest.raises(StoreError, match=r"a\.db is damaged here .* acpmux daemon shutdown"):
            await log.read(session(0)[0], Seq(0), 1000)

    on_disk(path, work)
    on_disk(path, lambda log: log.last_seq(S1))
    assert faults(path) == [] and len(kept_aside(path)) == 1


def test_file_of_a_newer_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="newer acpmux"):
        asyncio.run(SqliteLog.open(path))
    assert path.read_bytes() == before


def test_file_that_is_no_database_is_put_aside(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    path.write_bytes(b"not a database" * 100)
    on_disk(path, lambda log: log.commit(S1, [stored(1)], CHECKPOINT))
    (aside,) = kept_aside(path)
    assert aside.read_bytes() == b"not a database" * 100


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


FULL_DISK = """
import asyncio, resource, sys
from pathlib import Path
from acpmux.errors import StoreError, Unstorable
from acpmux.model.record import *
from acpmux.model.session import Checkpoint
from acpmux.store.log import SqliteLog
async def main():
    log = await SqliteLog.open(Path(sys.argv[1]))
    def commit(n):
        return log.commit("s1", [Stored(n, Record(Kind.UPDATE, b"x" * 20000, "c", n))], Checkpoint("s1", "one", "demo", "/", n, n))
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, hard))
    n = 1
    try:
        while n < 1000:
            await commit(n)
            n += 1
    except StoreError as error:
        print(n, error.retryable, error.message)
    assert [row.seq for row in await log.read("s1", 0, 10**6)] == list(range(1, n))
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    await commit(n)
    await log.close()
    log = await SqliteLog.open(Path(sys.argv[1]))
    assert [row.seq for row in await log.read("s1", 0, 10**6)] == list(range(1, n + 1))
    assert [(saved.created_at_ms, seq) for saved, seq in await log.checkpoints()] == [(n, n)]
    await log.close()
asyncio.run(main())
"""


def test_full_disk_refuses_the_commit_keeps_what_was_stored_and_takes_the_same_again(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    done = subprocess.run([sys.executable, "-c", FULL_DISK, str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    count, retryable, message = done.stdout.split(" ", 2)
    assert int(count) > 5 and retryable == "True" and f"{path} can't be written" in message
