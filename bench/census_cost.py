"""Census time with few and with many processes on the machine, against `ps` in the same run: `python bench/census_cost.py`."""

import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

from acpmux.census.table import identity_of, list_harness
from acpmux.census.verdict import judge
from acpmux.model.process import Harness, LaunchRecord

ROUNDS = 15
TREE = "import os, time\nfor _ in range(8):\n    if os.fork() == 0:\n        time.sleep(600)\nprint('up', flush=True)\ntime.sleep(600)"
CROWD = (
    "import os, signal, sys, time\nfor _ in range(int(sys.argv[1])):\n    if os.fork() == 0:\n        signal.pause()\n"
    "print(os.getpid(), flush=True)\nsignal.pause()"
)


def measure(sizes: tuple[int, ...]) -> Iterator[tuple[int, float, float]]:
    """(processes on the machine, census ms, `ps` ms) for each size, medians."""
    tree = subprocess.Popen([sys.executable, "-c", TREE], process_group=0, stdout=subprocess.PIPE)
    assert tree.stdout is not None
    tree.stdout.readline()
    leader = identity_of(tree.pid)
    assert leader is not None
    harness = Harness(leader, tree.pid, (), frozenset(), LaunchRecord(()), frozenset({os.getpid()}))
    try:
        for size in sizes:
            missing = max(0, size - sum(name.isdigit() for name in os.listdir("/proc")))
            crowd = _crowd(missing)
            count = sum(name.isdigit() for name in os.listdir("/proc"))
            yield count, _ms(lambda: judge(list_harness(harness, os.getpid()), harness)), _ms(_ps)
            os.killpg(crowd, signal.SIGKILL)  # a group of our own making, its leader alive
    finally:
        os.killpg(tree.pid, signal.SIGKILL)  # our own unreaped child leads it
        tree.communicate()


def _crowd(count: int) -> int:
    """So many processes that are nobody's under us. Returns the group they are in."""
    done = subprocess.Popen(
        ["sh", "-c", 'setsid "$0" -S -c "$1" "$2" &', sys.executable, CROWD, str(count)], stdout=subprocess.PIPE
    )
    assert done.stdout is not None
    leader = int(done.stdout.readline())
    done.stdout.close()
    done.wait()
    return leader


def _ps() -> None:
    subprocess.run(["ps", "-axww", "-o", "pid=,ppid=,pgid=,stat=,args="], capture_output=True, check=True)


def _ms(work: object) -> float:
    assert callable(work)
    taken: list[float] = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        work()
        taken.append((time.perf_counter() - began) * 1000)
    return statistics.median(taken)


if __name__ == "__main__":
    for processes, ours_ms, ps_ms in measure((90, 1000)):
        print(f"{processes:6} processes: census {ours_ms:7.2f} ms   ps {ps_ms:7.2f} ms   ratio {ps_ms / ours_ms:5.1f}")
