"""The log alone: commits, reads, commits while somebody reads, and the start with 10,000 sessions. Prints one table.

Absolute times are this machine's disk; the ratios are what to compare.
"""

import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src")]

from acpmux.model.ids import AgentSessionId, Seq, SessionId  # noqa: E402
from acpmux.model.record import Kind, Record, Stored  # noqa: E402
from acpmux.model.session import Checkpoint  # noqa: E402
from acpmux.store.log import SqliteLog  # noqa: E402

COMMITS = 2000
WRITERS = 50  # sessions that are busy at the same moment
BODY = b'{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"%s"}}' % (b"x" * 200)
LARGE = b"x" * 1_000_000
SESSIONS = 10_000


def row(what: str, figure: str, budget: str = "") -> None:
    print(f"{what:58} {figure:>34}   {budget}", flush=True)


def checkpoint(number: int) -> Checkpoint:
    return Checkpoint(
        SessionId(f"s{number:012x}"),
        f"session-{number}",
        "demo",
        "/home/somebody/project",
        number,
        number,
        command=("python3", "-m", "acpmux.agents.demo"),
        agent_session_id=AgentSessionId(f"agent-{number}"),
        title="a title of usual length",
    )


def update(seq: int, body: bytes = BODY) -> Stored:
    return Stored(Seq(seq), Record(Kind.UPDATE, body, "bench", seq))


async def commit_all(log: SqliteLog, number: int, count: int) -> list[float]:
    """Commits one record at a time to one session. Returns the milliseconds of each."""
    session = checkpoint(number)
    taken: list[float] = []
    for seq in range(1, count + 1):
        began = time.perf_counter()
        await log.commit(session.session_id, [update(seq)], session)
        taken.append((time.perf_counter() - began) * 1000)
    return taken


async def commits(log: SqliteLog) -> float:
    taken = await commit_all(log, 1, COMMITS)
    alone = COMMITS / (sum(taken) / 1000)
    row("one session, a commit each", f"{alone:,.0f} a second ({percentiles(taken)})")
    began = time.perf_counter()
    await asyncio.gather(*(commit_all(log, 100 + n, COMMITS // 10) for n in range(WRITERS)))
    together = WRITERS * (COMMITS // 10) / (time.perf_counter() - began)
    row(f"{WRITERS} sessions at once", f"{together:,.0f} a second, {together / alone:.1f} times")
    return statistics.median(taken)


async def reads(log: SqliteLog) -> None:
    session_id = checkpoint(1).session_id
    began = time.perf_counter()
    for after in range(500):
        await log.read(session_id, Seq(after), 1)
    row("reads of one record", f"{500 / (time.perf_counter() - began):,.0f} a second")
    began = time.perf_counter()
    for _ in range(20):
        await log.read(session_id, Seq(0), 500)
    row("reads of 500 records", f"{10_000 / (time.perf_counter() - began):,.0f} records a second")


async def commits_beside_a_reader(log: SqliteLog, quiet_ms: float) -> None:
    """Somebody pages through large records the whole time: a commit must not wait for it."""
    big = checkpoint(2)
    for seq in range(1, 101):
        await log.commit(big.session_id, [update(seq, LARGE)], big)

    async def page() -> None:
        while True:
            await log.read(big.session_id, Seq(0), 100)

    reader = asyncio.ensure_future(page())
    taken = await commit_all(log, 3, 300)
    reader.cancel()
    await asyncio.gather(reader, return_exceptions=True)
    ratio = statistics.median(taken) / quiet_ms
    row("a commit while 100 MB are read again and again", f"{ratio:.1f} times ({percentiles(taken)})")


async def start(folder: Path) -> None:
    log = await SqliteLog.open(folder / "many.db")
    await asyncio.gather(*(commit_all(log, n, 1) for n in range(SESSIONS)))
    await log.close()
    began = time.perf_counter()
    log = await SqliteLog.open(folder / "many.db")
    assert len(await log.checkpoints()) == SESSIONS
    row(f"open, and read {SESSIONS:,} sessions back", f"{(time.perf_counter() - began) * 1000:.0f} ms", "1 s")
    await log.close()


def percentiles(taken: list[float]) -> str:
    ordered = sorted(taken)
    return f"p50 {ordered[len(ordered) // 2]:.2f}, p99 {ordered[int(len(ordered) * 0.99)]:.2f} ms"


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="acpmux-bench-") as name:
        folder = Path(name)
        log = await SqliteLog.open(folder / "one.db")
        quiet_ms = await commits(log)
        await reads(log)
        await commits_beside_a_reader(log, quiet_ms)
        await log.close()
        await start(folder)


if __name__ == "__main__":
    asyncio.run(main())
