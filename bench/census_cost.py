"""Census time with few and with many processes on the machine, against `ps` and psutil in the same run: `python bench/census_cost.py`."""

import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import psutil

from acpmux.census.table import identity_of, list_harness
from acpmux.census.verdict import judge
from acpmux.model.process import Harness, LaunchRecord

ROUNDS = 15
TREE = "import os, time\nfor _ in range(8):\n    if os.fork() == 0:\n        time.sleep(600)\nprint('up', flush=True)\ntime.sleep(600)"
CROWD = (
    "import os, signal, sys, time\nfor _ in range(int(sys.argv[1])):\n    if os.fork() == 0:\n        signal.pause()\n"
    "print(os.getpid(), flush=True)\nsignal.pause()"
)


class Cost(NamedTuple):
    """Of one look: milliseconds on the clock and of processor time, helpers included, medians."""

    clock_ms: float
    cpu_ms: float


def measure(sizes: tuple[int, ...]) -> Iterator[tuple[int, Cost, Cost, Cost]]:
    """(processes on the machine, our census, `ps`, psutil) for each size, in turn in one run."""
    tree = subprocess.Popen([sys.executable, "-c", TREE], process_group=0, stdout=subprocess.PIPE)
    assert tree.stdout is not None
    tree.stdout.readline()
    leader = identity_of(tree.pid)
    assert leader is not None
    harness = Harness(leader, tree.pid, (), frozenset(), LaunchRecord(()), frozenset({os.getpid()}))
    looks = (lambda: judge(list_harness(harness, os.getpid()), harness), _ps, lambda: _psutil(tree.pid))
    try:
        for size in sizes:
            missing = max(0, size - sum(name.isdigit() for name in os.listdir("/proc")))
            crowd = _crowd(missing)
            count = sum(name.isdigit() for name in os.listdir("/proc"))
            yield (count, *_costs(looks))
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


def _psutil(pid: int) -> None:
    """What a census by psutil would be: parents, command lines, states and start times, and the group of each."""
    wanted = ["pid", "ppid", "cmdline", "status", "create_time"]
    for process in psutil.process_iter(wanted):
        try:
            os.getpgid(process.pid)
        except OSError:
            continue


def _costs(looks: tuple[Callable[[], object], ...]) -> list[Cost]:
    taken: list[list[Cost]] = [[] for _ in looks]
    for _ in range(ROUNDS):
        for number, look in enumerate(looks):
            clock, before = time.perf_counter(), os.times()
            look()
            after = os.times()
            cpu = sum(after[:4]) - sum(before[:4])
            taken[number].append(Cost((time.perf_counter() - clock) * 1000, cpu * 1000))
    return [
        Cost(statistics.median(one.clock_ms for one in column), statistics.mean(one.cpu_ms for one in column))
        for column in taken
    ]


if __name__ == "__main__":
    print("| processes | census ms (cpu) | ps ms (cpu) | psutil ms (cpu) |\n| --- | --- | --- | --- |")
    for count, *costs in measure((100, 1000, 5000)):
        print(f"| {count} | " + " | ".join(f"{c.clock_ms:.1f} ({c.cpu_ms:.0f})" for c in costs) + " |")
