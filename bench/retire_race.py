"""Retirements of an agent that forks a worker at a random moment around them: none may be killed.

`python bench/retire_race.py [--tries 500] [--load 0] [--seed 1]`. Each try starts a host and an agent, tells the agent to fork after a random
time, and asks for the retirement. The agents differ: a plain fork, one from a thread, a child in a session of its own, a program spawned by
vfork and one by posix_spawn, a double fork that leaves the tree, and a chain that forks itself onward every 2 ms and only comes to rest later;
each with and without a TERM handler. A worker announces itself with its first instruction. `--load` is forks a second beside it all. A
retirement that was refused because the table would not hold still is asked for again, as the daemon does; how often and how long is told.
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
from typing import Any, NamedTuple

from acpmux.census.table import identity_of
from acpmux.model.ids import HostId, HostSeq, SessionId
from acpmux.paths import Paths
from acpmux.ports import LaunchSpec
from acpmux.runtime.launcher import UnixHostLauncher
from acpmux.runtime.tasks import Tasks

WINDOW_S = 0.008  # a retirement of a small agent takes 2 to 4 ms from the request to its first signal
KINDS = ("fork", "thread", "setsid", "vfork", "posix_spawn", "double fork", "chain")
AGAIN_S = 0.2  # what the daemon waits before it asks again
CHAIN_S = 0.3  # a chain comes to rest after so long

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
def chain():
    os.write(out, b"chain\\n")
    until = time.monotonic() + 0.3
    while time.monotonic() < until:
        time.sleep(0.002)
        if os.fork(): os._exit(0)
    worker()
def detach():
    if os.fork() == 0:
        os.setsid()
        if os.fork(): os._exit(0)
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2): os.dup2(null, fd)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        worker()
    os.wait()
def act():
    code = "import os, time; os.write(%d, b'%%d\\\\n' %% os.getpid()); time.sleep(60)" % out
    command = [sys.executable, "-S", "-c", code]
    if kind == "vfork":
        subprocess.Popen(command, pass_fds=[out])
    elif kind == "posix_spawn":
        os.set_inheritable(out, True)
        os.posix_spawn(command[0], command, os.environ)
    elif kind == "double fork":
        detach()
    elif kind == "chain":
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            chain()
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
    def ended(self, header: Mapping[str, Any]) -> None: ...
    def freed(self) -> None: ...
    def lost(self, reason: str) -> None: ...


class Asked(NamedTuple):
    """What came of one retirement: how often the table would not hold still, and how long that delayed it."""

    outcome: str
    fate: str
    unstable: int
    delay_s: float


async def one(launcher: UnixHostLauncher, folder: Path, number: int, rng: random.Random) -> Asked:
    kind, handler = rng.choice(KINDS), rng.choice(("handler", "plain"))
    announced = folder / f"worker-{number}"
    announced.touch(0o600)
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
    unstable, began = 0, time.monotonic()
    while True:
        answer = await link.request("retire", 20, after=ears.last, grace_ms=2000, park=False)
        if answer["t"] == "retired" or answer["kind"] != "unknown" or not answer["retry"]:
            break
        unstable += 1
        await asyncio.sleep(AGAIN_S)
    delay_s = time.monotonic() - began if unstable else 0.0
    await asyncio.sleep(max(0.0, fork_at - time.monotonic()) + 0.08 + (CHAIN_S + 0.1 if kind == "chain" else 0))
    words = announced.read_text().split()
    pids = [int(word) for word in words if word != "chain"]
    alive = [pid for pid in pids if identity_of(pid) is not None]
    fate = "no worker" if not words else "alive" if pids and alive == pids else "KILLED"
    outcome = "retired" if answer["t"] == "retired" else f"refused: {answer['kind']}"
    if answer["t"] != "retired":
        await link.request("end", 20, all=True)
    for pid in alive:
        try:
            os.kill(pid, signal.SIGKILL)  # our own worker, seen alive a moment ago
        except ProcessLookupError:
            pass
    await link.close()
    announced.unlink()
    return Asked(outcome, fate, unstable, delay_s)


async def run(tries: int, load: float, seed: int, at_once: int) -> list[Asked]:
    found: list[Asked] = []
    numbers = iter(range(tries))
    with tempfile.TemporaryDirectory() as name:
        paths = Paths(Path(name) / "home")
        paths.prepare()
        tasks = Tasks()
        launcher = UnixHostLauncher(paths, tasks)
        noise = await asyncio.create_subprocess_exec(sys.executable, "-S", "-c", LOAD, str(load)) if load else None

        async def worker(rng: random.Random) -> None:
            for number in numbers:
                found.append(await one(launcher, Path(name), number, rng))
                if sys.stderr.isatty() and len(found) % 10 == 0:
                    print(f"\r{len(found)}/{tries}", end="", file=sys.stderr)

        try:
            await asyncio.gather(*(worker(random.Random(seed * 1000 + n)) for n in range(at_once)))
        finally:
            if noise is not None:
                noise.kill()
                await noise.wait()
            await tasks.close()
    return found


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
    parser.add_argument("--at-once", type=int, default=1, help="agents side by side, each other's load")
    told = parser.parse_args()
    began = time.monotonic()
    found = asyncio.run(run(told.tries, told.load, told.seed, told.at_once))
    print(f"{told.tries} retirements, load {told.load:g} forks a second, {time.monotonic() - began:.0f} s")
    counted = Counter((one.outcome, one.fate) for one in found)
    for (outcome, fate), count in counted.most_common():
        print(f"  {count:5}  {outcome:20} worker: {fate:10} {EXPLAINED.get((outcome, fate), 'UNEXPLAINED')}")
    given_up = [one for one in found if one.unstable]
    listings = len(found) + sum(one.unstable for one in found)
    share = 100 * (listings - len(found)) / listings
    print(f"retirements whose table would not hold still: {listings - len(found)} of {listings} asked ({share:.1f} %)")
    if given_up:
        delays = sorted(one.delay_s for one in given_up)
        print(
            f"  {len(given_up)} sleeps delayed by it, median {delays[len(delays) // 2]:.1f} s, longest {delays[-1]:.1f} s"
        )
    killed = sum(count for (_, fate), count in counted.items() if fate == "KILLED")
    unexplained = sum(count for pair, count in counted.items() if pair not in EXPLAINED)
    print(f"workers killed: {killed}   unexplained: {unexplained}")
    return 1 if killed or unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
