"""`make bench`: the figures of the budgets, as ratios in one run where speed is meant. Prints one table.

Every part runs real processes in folders of its own. Absolute times are this machine's; the ratios are what to compare.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "bench")]

from kit.product import Product  # noqa: E402

ROUNDS = 15  # medians of so many; more change nothing here
ROWS: list[tuple[str, str, str]] = []


def row(what: str, figure: str, budget: str = "") -> None:
    ROWS.append((what, figure, budget))
    print(f"{what:62} {figure:>34}   {budget}", flush=True)


def median_ms(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    taken: list[float] = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        taken.append((time.perf_counter() - began) * 1000)
    return statistics.median(taken)


def private_dirty_mb(pid: int) -> float:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Private_Dirty:")) / 1024


def rss_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


# ------------------------------------------------------------ parts


def cold_start(product: Product) -> None:
    bare = median_ms(lambda: subprocess.run([sys.executable, "-c", "pass"], check=True))
    product.ok("ls")
    ls = median_ms(lambda: product.run("ls"))
    row("acpmux ls, cold, over a bare interpreter", f"{ls / bare:.1f} times ({ls:.0f} / {bare:.0f} ms)", "6 times")


def host_memory(product: Product) -> None:
    product.ok("new", "-a", "scripted", "-n", "s")
    product.ok("send", "s", "hello")
    product.ok("ps", "s")
    pid = product.json("info", "s")["hostPid"]
    row("host, Private_Dirty, after a turn and a census", f"{private_dirty_mb(pid):.1f} MB", "8 MB")


def wake_overhead(product: Product) -> None:
    """acpmux's own part of a wake: from the spawn to READY, less what the same agent takes on a bare pipe."""
    from pipe import BarePipe

    script = product.folder / "scripted.json"
    bare = median_ms(lambda: BarePipe(script).open_and_end(), 9)
    taken: list[float] = []
    for _ in range(9):
        product.ok("hibernate", "s")
        product.ok("wake", "s")
        taken.append(_last_wake_ms(product))
    woke = statistics.median(taken)
    row(
        "wake, over the same agent's start and resume on a bare pipe",
        f"+{woke - bare:.0f} ms ({woke:.0f} / {bare:.0f} ms)",
        "100 ms",
    )


def _last_wake_ms(product: Product) -> float:
    from acpmux.client import Connection

    with Connection(str(product.home / "acpmux.sock")) as connection:
        told = connection.request("_acpmux/events", {"sessionId": "s", "kinds": ["woke"], "last": 1})
    return float(told["events"][-1]["body"]["tookMs"])


def update_latency(product: Product) -> None:
    """One update from the agent's write to the client's read, through acpmux and on a bare pipe."""
    from pipe import BarePipe, delays_ms

    pipe = BarePipe(product.folder / "scripted.json")
    pipe.open()
    for count, per_second, budget in ((300, 100, "1 ms"), (5000, 1000, "p99 10 ms")):
        bare, ours = sorted(pipe.delays_ms(count, per_second)), sorted(delays_ms(product, "s", count, per_second))
        added = statistics.median(ours) - statistics.median(bare)
        p99 = ours[int(len(ours) * 0.99)]
        figure = f"+{added:.2f} ms ({statistics.median(ours):.2f}); p99 {p99:.1f} ms"
        row(f"one update under way, {per_second} a second, median over a bare pipe", figure, budget)
    pipe.end()


def flood(product: Product) -> None:
    from pipe import flood_rate

    for clients in (1, 3):
        rate = flood_rate(product, "s", clients, 20_000)
        row(f"sustained updates, agent to log to {clients} client(s)", f"{rate:,.0f} a second", "10,000 to 3")


def daemon_memory(folder: Path) -> None:
    sizes: list[float] = []
    for count in (0, 1000):
        product = Product(_made(folder / f"memory-{count}"))
        if count:
            _store_sessions(product, count)
        began = time.perf_counter()
        product.ok("daemon", "start")
        started_ms = (time.perf_counter() - began) * 1000
        time.sleep(1)
        sizes.append(rss_mb(product.json("daemon", "status")["pid"]))
        assert len(product.json("ls")) == count
        if count:
            row("daemon, wake-ups in 10 s with 1,000 hibernated sessions", f"{_wakeups(product):d}", "0 in 60 s")
        product.end()
        row(f"daemon, resident, {count} hibernated sessions", f"{sizes[-1]:.0f} MB", "64 MB at 1,000")
        if count:
            row("  its start, with the command's own", f"{started_ms:.0f} ms", "-")
    product = Product(_made(folder / "many"))
    _store_sessions(product, 10_000)
    began = time.perf_counter()
    product.ok("daemon", "start")
    row("daemon start with 10,000 stored sessions", f"{(time.perf_counter() - began) * 1000:.0f} ms", "1 s")
    product.end()


def _wakeups(product: Product) -> int:
    pid = product.json("daemon", "status")["pid"]
    time.sleep(0.5)

    def switches() -> int:
        total = 0
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for line in (thread / "status").read_text().splitlines():
                if line.startswith("voluntary_ctxt_switches"):
                    total += int(line.split()[1])
        return total

    before = switches()
    time.sleep(10)
    return switches() - before


def _store_sessions(product: Product, count: int) -> None:
    import asyncio

    from acpmux.model.ids import AgentSessionId, Seq, SessionId
    from acpmux.model.record import Kind, Record, Stored
    from acpmux.model.session import Checkpoint
    from acpmux.store.log import SqliteLog

    async def store() -> None:
        log = await SqliteLog.open(product.home / "acpmux.db")
        for number in range(count):
            checkpoint = Checkpoint(
                SessionId(f"s{number:012x}"),
                f"session-{number}",
                "demo",
                "/tmp",
                number,
                number,
                command=("python3", "-m", "acpmux.agents.demo"),
                agent_session_id=AgentSessionId(f"agent-{number}"),
                title="a title of usual length",
            )
            rows = [Stored(Seq(1), Record(Kind.CREATED, b"{}", "bench", number))]
            await log.commit(checkpoint.session_id, rows, checkpoint)
        await log.close()

    asyncio.run(store())


def census_time() -> None:
    from census_cost import measure

    for processes, ours, ps, _ in measure((90, 1000)):
        ratio = ps.clock_ms / ours.clock_ms
        row(
            f"census of one harness, {processes} processes",
            f"{ours.clock_ms:.2f} ms (ps: {ratio:.0f} times that)",
            "20 ms at 1,000",
        )


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def main() -> None:
    parts: list[Callable[[Any], None]] = [cold_start, host_memory, wake_overhead, update_latency, flood]
    with tempfile.TemporaryDirectory(prefix="acpmux-bench-") as name:
        product = Product(_made(Path(name) / "one"))
        product.agent()
        try:
            for part in parts:
                part(product)
        finally:
            product.end()
        daemon_memory(Path(name))
    census_time()
    print("\nthe log alone:")
    subprocess.run([sys.executable, str(ROOT / "bench/store.py")], check=True)
    print("\nretirements of an agent that forks at random (more: bench/retire_race.py --help):")
    subprocess.run([sys.executable, str(ROOT / "bench/retire_race.py"), "--tries", "60"], check=True)


if __name__ == "__main__":
    main()
