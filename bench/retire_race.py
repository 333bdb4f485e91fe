"""Retirements of an agent that forks a worker at a random moment around them: none may be killed.

`python bench/retire_race.py [--tries 500] [--load 0] [--seed 1]`. Each try starts a host and an agent, tells the agent to fork after a random
time, and asks for the retirement. The agents differ: a plain fork, one from a thread, a child in a session of its own, a spawned program, and each
with and without a TERM handler. A worker announces itself with its first instruction. `--load` is forks a second beside it all.
"""

import argparse
import asyncio
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from acpmux.census.table import identity_of
from acpmux.model.ids import HostId, HostSeq, SessionId
from acpmux.paths import Paths
from acpmux.ports import LaunchSpec
from acpmux.runtime.launcher import UnixHostLauncher
from acpmux.runtime.tasks import Tasks

WINDOW_S = 0.008  # a retirement of a small agent takes 2 to 4 ms from the request to its first signal
KINDS = ("fork", "thread", "setsid", "spawn")

AGENT = """
import os, signal, subprocess, sys, threading, time
kind, handler, out = sys.argv[1], sys.argv[2] == "handler", int(sys.argv[3])
if handler:
    signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.003), sys.exit(0)))
def worker():
    os.write(out, b"%d\\n" % os.getpid())
    time.sleep(60)
    os._exit(0)
def fork(setsid=False):
    if os.fork() == 0:
        if setsid: os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        worker()
def act():
    if kind == "spawn":
        subprocess.Popen([sys.executable, "-S", "-c", "import os, time; os.write(%d, b'%%d\\\\n' %% os.getpid()); time.sleep(60)" % out], pass_fds=[out])
    else:
        fork(kind == "setsid")
print('{"jsonrpc":"2.0","method":"ready"}', flush=True)
at = float(sys.stdin.readline())
while time.monotonic() < at: pass
if kind == "thread":
    t = threading.Thread(target=act); t.start(); t.join()
else:
    act()
time.sleep(60)
"""

LOAD = """
import os, sys, time
rate = float(sys.argv[1]); began = time.monotonic(); n = 0
while True:
    n += 1
    if os.fork() == 0: os._exit(0)
    os.wait()
    ahead = n / rate - (time.monotonic() - began)
    if ahead > 0: time.sleep(ahead)
"""


class Ears:
    """Hears the agent say that it is ready."""

    def __init__(self) -> None:
        self.ready = asyncio.Event()
        self.last = HostSeq(0)

    def line(self, host_seq: HostSeq, data: bytes) -> None:
        self.last = host_seq
        self.ready.set()

    def exited(self, header: Mapping[str, Any]) -> None: ...
    def freed(self) -> None: ...
    def lost(self, reason: str) -> None: ...


async def one(launcher: UnixHostLauncher, folder: Path, number: int, rng: random.Random) -> tuple[str, str]:
    """One try: what came of the retirement, and what became of the worker."""
    kind, handler = rng.choice(KINDS), rng.choice(("handler", "plain"))
    announced = folder / f"worker-{number}"
    out = os.open(announced, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    os.close(out)
    command = ("sh", "-c", f'exec 9>>{announced}; exec "$0" -S -c "$@"', sys.executable, AGENT, kind, handler, "9")
    env = {"PATH": os.environ["PATH"]}
    spec = LaunchSpec(HostId(f"h{number}"), SessionId("s"), command, str(folder), env, (), ())
    ears = Ears()
    link = await launcher.start(spec, ears)
    await asyncio.wait_for(ears.ready.wait(), 20)
    await asyncio.sleep(0.01)
    fork_at = time.monotonic() + rng.uniform(0, WINDOW_S)
    link.send(repr(fork_at).encode())
    await asyncio.sleep(rng.uniform(0, 0.002))
    answer = await link.request("retire", 20, after=ears.last, grace_ms=2000, park=False)
    await asyncio.sleep(max(0.0, fork_at - time.monotonic()) + 0.08)
    pids = [int(line) for line in announced.read_text().split()]
    alive = [pid for pid in pids if identity_of(pid) is not None]
    fate = "no worker" if not pids else "alive" if alive == pids else "KILLED"
    outcome = "retired" if answer["t"] == "retired" else f"refused: {answer['kind']}"
    if answer["t"] != "retired":
        await link.request("end", 20, all=True)
    for pid in alive:
        try:
            os.kill(pid, signal.SIGKILL)  # our own worker, seen alive a moment ago
        except ProcessLookupError:
            pass
    await link.close()
    return f"{outcome}", fate


async def run(tries: int, load: float, seed: int) -> Counter[tuple[str, str]]:
    counted: Counter[tuple[str, str]] = Counter()
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        paths = Paths(Path(name) / "home")
        paths.prepare()
        tasks = Tasks()
        launcher = UnixHostLauncher(paths, tasks)
        noise = await asyncio.create_subprocess_exec(sys.executable, "-S", "-c", LOAD, str(load)) if load else None
        try:
            for number in range(tries):
                counted[await one(launcher, Path(name), number, rng)] += 1
                if sys.stderr.isatty() and number % 10 == 9:
                    print(f"\r{number + 1}/{tries}", end="", file=sys.stderr)
        finally:
            if noise is not None:
                noise.kill()
                await noise.wait()
            await tasks.close()
    return counted


EXPLAINED = {
    ("retired", "no worker"): "it ended before its fork",
    ("retired", "alive"): "it forked after the count, while it was ending: not counted, so never signalled",
    ("refused: held", "alive"): "the worker was counted and named",
    ("refused: unwritten", "alive"): "it had not read all that was sent to it",
    ("refused: unwritten", "no worker"): "it had not read all that was sent to it",
    ("refused: unknown", "alive"): "the table would not hold still (a fork under way, or the load)",
    ("refused: unknown", "no worker"): "the table would not hold still (the load)",
    ("refused: unstopped", "alive"): "it did not stop in 50 ms",
    ("refused: unstopped", "no worker"): "it did not stop in 50 ms",
    ("refused: held", "no worker"): "a child was counted that had not announced itself yet",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tries", type=int, default=500)
    parser.add_argument("--load", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=1)
    told = parser.parse_args()
    began = time.monotonic()
    counted = asyncio.run(run(told.tries, told.load, told.seed))
    print(f"{told.tries} retirements, load {told.load:g} forks a second, {time.monotonic() - began:.0f} s")
    for (outcome, fate), count in counted.most_common():
        print(f"  {count:5}  {outcome:20} worker: {fate:10} {EXPLAINED.get((outcome, fate), 'UNEXPLAINED')}")
    killed = sum(count for (_, fate), count in counted.items() if fate == "KILLED")
    unexplained = sum(count for pair, count in counted.items() if pair not in EXPLAINED)
    print(f"workers killed: {killed}   unexplained: {unexplained}")
    return 1 if killed or unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
