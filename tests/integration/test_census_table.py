"""The listing, on real processes of the kinds that hide."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from acpmux.census import peers, ps
from acpmux.census.table import CensusError, identity_of, list_harness
from acpmux.census.verdict import judge
from acpmux.host.signals import kill_child
from acpmux.model.process import Clear, Harness, Held, Identity, LaunchRecord, Listing

HEAD = "import os, sys, threading, time, signal, subprocess\n"
REAPING = (
    "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"  # a subreaper that reaps nothing fills the table with zombies
)


@contextmanager
def running(code: str, *args: str, subreaper: bool = False, env: dict[str, str] | None = None) -> Iterator[Harness]:
    """A leader in a group of its own that said it is ready; its group and children are ended after the test."""
    prefix = "import ctypes; ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)\n" if subreaper else ""
    process = subprocess.Popen(
        [sys.executable, "-c", HEAD + prefix + code, *args],
        process_group=0,
        stdout=subprocess.PIPE,
        env=env or dict(os.environ),
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"ready\n"
        leader = identity_of(process.pid) or Identity(process.pid, 0)
        yield Harness(leader, process.pid, (), None, LaunchRecord(()), frozenset({os.getpid()}))
    finally:
        for pid in [*(row.pid for row in tree(process.pid)), process.pid]:
            try:
                os.kill(pid, signal.SIGKILL)  # listed under our own unreaped child a moment ago
            except ProcessLookupError:
                pass
        process.stdout.close()
        process.wait()


def tree(pid: int) -> list[Identity]:
    from acpmux.census.table import best_effort

    return [row.identity for row in best_effort(pid)]


def whole(harness: Harness, host_pid: int | None = None) -> Listing:
    """A listing, tried again while the machine is busy."""
    for _ in range(50):
        try:
            return list_harness(harness, host_pid or os.getpid())
        except CensusError as error:
            assert error.retry, error.reason
    raise AssertionError("the table never held still")


def commands(harness: Harness) -> list[str]:
    return sorted(row.argv[0].decode() for row in whole(harness).rows if row.pid != harness.leader.pid)


READY = "print('ready', flush=True)\ntime.sleep(300)\n"


def test_child_of_a_thread_is_listed() -> None:
    code = "def go():\n    subprocess.Popen(['sleep', '301'])\n    time.sleep(300)\nthreading.Thread(target=go, daemon=True).start()\ntime.sleep(0.3)\n"
    with running(code + READY) as harness:
        assert commands(harness) == ["sleep"]


def test_process_whose_main_thread_ended_is_listed_with_its_children() -> None:
    code = (
        "if os.fork() == 0:\n    def go():\n        subprocess.Popen(['sleep', '301'])\n        time.sleep(300)\n"
        "    threading.Thread(target=go).start()\n    time.sleep(0.3)\n    import ctypes\n    ctypes.CDLL(None).pthread_exit(None)\n"
        "time.sleep(0.6)\n"
    )
    with running(code + READY) as harness:
        rows = [row for row in whole(harness).rows if row.pid != harness.leader.pid]
        assert len(rows) == 2 and any(row.state == "Z" and row.threads > 1 for row in rows)


def test_child_in_a_session_of_its_own_is_listed() -> None:
    with running("subprocess.Popen(['sleep', '301'], start_new_session=True)\n" + READY) as harness:
        assert commands(harness) == ["sleep"]


def test_member_of_the_group_that_found_another_parent_is_listed() -> None:
    code = "if os.fork() == 0:\n    if os.fork() == 0:\n        os.execvp('sleep', ['sleep', '301'])\n    os._exit(0)\nos.wait()\ntime.sleep(0.3)\n"
    with running(code + READY) as harness:
        listed = [row for row in whole(harness).rows if row.argv[0] == b"sleep"]
        assert len(listed) == 1
        os.kill(listed[0].pid, signal.SIGKILL)


def test_zombie_is_not_listed() -> None:
    with running("if os.fork() == 0:\n    os._exit(0)\ntime.sleep(0.2)\n" + READY) as harness:
        assert commands(harness) == []


def test_what_left_the_tree_for_the_host_is_listed_apart() -> None:
    """The leader's parent plays the host: a subreaper with the leader below it."""
    code = (
        "leader = os.fork()\nif leader == 0:\n    os.setpgid(0, 0)\n    if os.fork() == 0:\n        os.setsid()\n        if os.fork() == 0:\n"
        "            os.execvp('sleep', ['sleep', '301'])\n        os._exit(0)\n    os.wait()\n    time.sleep(300)\n"
        "time.sleep(0.4)\nprint('ready', flush=True)\ntime.sleep(300)\n"
    )
    with running(code, subreaper=True) as host:
        leader = next(i for i in tree(host.leader.pid) if os.getpgid(i.pid) == i.pid and os.getsid(i.pid) != i.pid)
        harness = host._replace(leader=leader, pgid=leader.pid)
        listing = whole(harness, host.leader.pid)
        assert [row.pid for row in listing.rows] == [leader.pid]
        assert [row.argv[0] for row in listing.adopted] == [b"sleep"]


LEAVES = """
import socket
leader = os.fork()
if leader == 0:
    os.setpgid(0, 0)
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for fd in range(3):
            os.dup2(null, fd)
        if os.fork() == 0:
            ours.close()
            os.execvp('sleep', ['sleep', '301']) if os.dup2(theirs.fileno(), 1, inheritable=True) else None
        if os.fork() == 0:
            ours.close(), theirs.close()
            listener = socket.create_server(('127.0.0.1', 0))
            os.set_inheritable(listener.fileno(), True)
            os.execvp('sleep', ['sleep', '302'])
        os._exit(0)
    os.wait()
    time.sleep(300)
time.sleep(0.5)
print('ready', flush=True)
time.sleep(300)
"""


@pytest.mark.parametrize("told", ["all", "nothing", "another socket's"])
def test_socket_whose_peer_the_kernel_does_not_tell_ties_and_one_that_only_listens_does_not(
    monkeypatch: pytest.MonkeyPatch, told: str
) -> None:
    if told != "all":
        monkeypatch.setattr(peers, "_unix_peers", lambda: {} if told == "nothing" else {"1": "2"})
    with running(LEAVES, subreaper=True) as host:
        leader = next(i for i in tree(host.leader.pid) if os.getpgid(i.pid) == i.pid and os.getsid(i.pid) != i.pid)
        listing = whole(host._replace(leader=leader, pgid=leader.pid), host.leader.pid)
        assert {row.argv[1]: row.pid in listing.tied for row in listing.adopted} == {b"301": True, b"302": False}


def test_marker_is_an_exact_member_of_the_environment() -> None:
    code = (
        "subprocess.Popen(['sleep', '301'], env={'ACPMUX_MCP': 'n:time'})\n"
        "subprocess.Popen(['sleep', '302'], env={'X': 'ACPMUX_MCP=n:time', 'XACPMUX_MCP': 'n:time'})\n"
        "subprocess.Popen(['sleep', '303'], env={'AI_AGENT': 'claude-code_2_agent', 'CLAUDE_PID': '5'})\n"
    )
    with running(code + READY) as harness:
        found = {row.argv[1]: (row.marker, row.tool) for row in whole(harness).rows if row.argv[0] == b"sleep"}
        assert found == {b"301": ("n:time", False), b"302": (None, False), b"303": (None, True)}


def test_arguments_are_bytes_as_the_kernel_has_them() -> None:
    nap = "import time; time.sleep(300)"
    code = f"subprocess.Popen([sys.executable, '-S', '-c', {nap!r}, b'a b', b'', b'\\xff\\n'])\n"
    with running(code + READY) as harness:
        row = next(row for row in whole(harness).rows if row.pid != harness.leader.pid)
        assert row.argv[1:] == (b"-S", b"-c", nap.encode(), b"a b", b"", b"\xff\n")


def test_leader_that_is_gone_or_another_process_is_an_error() -> None:
    with running(READY) as harness:
        other = harness._replace(leader=Identity(harness.leader.pid, harness.leader.start + 1))
        with pytest.raises(CensusError, match="first process is gone"):
            list_harness(other, os.getpid())
    with pytest.raises(CensusError, match="first process"):
        list_harness(harness, os.getpid())


HOP = """
import os, sys, time
deadline = time.monotonic() + 4  # it outlives the test by seconds only, whoever its parent is then
def hop():
    while time.monotonic() < deadline:
        time.sleep(float(sys.argv[1]))
        if os.fork():
            os._exit(0)
        {setsid}
os.setpgid(0, 0) if {own} else None
hop()
"""


@pytest.mark.parametrize("pause", ["0.001", "0.003", "0.01"])
@pytest.mark.parametrize("setsid", ["pass", "os.setsid()"])
def test_process_that_forks_itself_onward_is_never_missed(pause: str, setsid: str) -> None:
    """Alive at every moment, each time as another process: a listing shows it, or there is no listing."""
    hop = HOP.replace("{setsid}", setsid).replace("{own}", "False")
    code = f"subprocess.Popen([sys.executable, '-S', '-c', {hop!r}, {pause!r}])\ntime.sleep(0.3)\n"
    with running(code + REAPING + READY, subreaper=True) as harness:
        shown = given_up = 0
        deadline = time.monotonic() + 1.5
        while time.monotonic() < deadline:
            try:
                listing = list_harness(harness, os.getpid())
            except CensusError as error:
                assert error.retry, error.reason
                given_up += 1
                continue
            assert len(listing.rows) > 1, "a whole listing without the process that was there all along"
            shown += 1
        assert shown + given_up > 0


def test_storm_of_forks_gives_no_listing_rather_than_a_wrong_one() -> None:
    storm = "end = time.monotonic() + 6\nwhile time.monotonic() < end:\n    pid = os.fork()\n    if pid == 0: os._exit(0)\n    os.waitpid(pid, 0)\n"
    with running("for _ in range(3):\n    if os.fork() == 0:\n        exec(" + repr(storm) + ")\n" + READY) as harness:
        for _ in range(20):
            try:
                assert len(list_harness(harness, os.getpid()).rows) >= 4
            except CensusError as error:
                assert error.retry, error.reason


SPAWN = "child = subprocess.Popen([{0}], start_new_session=True{1})\nprint('ready', flush=True)\ntime.sleep(60)"


def spawner(*words: str, more: str = "") -> str:
    return SPAWN.format(", ".join(map(repr, words)), more)


@pytest.mark.parametrize("state", [signal.SIGSTOP, None])
def test_stopped_and_running_children_hold_alike(state: signal.Signals | None) -> None:
    with running(spawner("sleep", "50")) as harness:
        child = next(row for row in whole(harness).rows if row.pid != harness.leader.pid)
        if state is not None:
            os.kill(child.pid, state)
        assert isinstance(judge(whole(harness), harness), Held)


def test_traced_child_is_listed() -> None:
    traced = "import ctypes, os; ctypes.CDLL(None).ptrace(0, 0, 0, 0); os.kill(os.getpid(), 19)"
    with running(spawner(sys.executable, "-c", traced)) as harness:
        deadline = time.monotonic() + 10
        while not [row for row in whole(harness).rows if row.state == "t"]:
            assert time.monotonic() < deadline, whole(harness)
        assert isinstance(judge(whole(harness), harness), Held)


@pytest.mark.skipif(os.getuid() != 0, reason="only root may become another user")
def test_another_users_process_below_the_harness_holds_it() -> None:
    with running(spawner("sleep", "50", more=", user=65534")) as harness:
        assert isinstance(judge(whole(harness), harness), Held)


@pytest.mark.skipif(os.getuid() != 0, reason="only root may make a pid namespace without a user namespace")
def test_process_in_a_pid_namespace_of_its_own_is_seen_from_outside() -> None:
    with running(spawner("unshare", "--pid", "--fork", "sleep", "50")) as harness:
        deadline = time.monotonic() + 10
        while not [row for row in whole(harness).rows if row.argv == (b"sleep", b"50")]:
            assert time.monotonic() < deadline, whole(harness)


def test_exec_loop_is_never_judged_clear() -> None:
    """In the moment of an exec a process shows no command at all."""
    code = "import os, sys; os.execv(sys.executable, [sys.executable, '-S', '-c', sys.argv[1], sys.argv[1]])"
    with running(spawner(sys.executable, "-S", "-c", code, code)) as harness:
        for _ in range(100):
            try:
                assert isinstance(judge(list_harness(harness, os.getpid()), harness), Held)
            except CensusError as error:
                assert error.retry, error.reason


def test_hidden_proc_is_no_listing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acpmux.census.table.FIRST_PROCESS", "/proc/0/stat")
    with running(spawner("sleep", "50")) as harness, pytest.raises(CensusError, match="hides") as raised:
        list_harness(harness, os.getpid())
    assert not raised.value.retry


# ------------------------------------------------------------ ps


def by_ps(harness: Harness) -> Listing:
    return ps.list_harness(harness, os.getpid(), kill_child)


def without_starts(harness: Harness) -> Harness:
    """Where there are no start times, every one is 0."""
    return harness._replace(leader=Identity(harness.leader.pid, 0))


def test_ps_shows_the_tree_and_the_group_as_proc_does() -> None:
    code = (
        "if os.fork() == 0:\n os.setsid()\n os.fork() or time.sleep(60)\n time.sleep(60)\n"
        "if os.fork() == 0:\n os.fork() and os._exit(0)\n time.sleep(60)\n"
        "time.sleep(0.3)\nprint('ready', flush=True)\ntime.sleep(60)"
    )
    with running(code) as harness:
        ours, theirs = whole(harness), by_ps(without_starts(harness))
        assert {row.pid for row in ours.rows} == {row.pid for row in theirs.rows}
        assert isinstance(judge(theirs, without_starts(harness)), Held)
        for row in ours.rows:  # one of them has another parent by now
            os.kill(row.pid, signal.SIGKILL)


def test_ps_of_a_harness_alone_is_clear_and_of_one_that_is_gone_an_error() -> None:
    with running("print('ready', flush=True)\ntime.sleep(60)") as harness:
        assert isinstance(judge(by_ps(without_starts(harness)), without_starts(harness)), Clear)
    with pytest.raises(CensusError, match="gone"):
        by_ps(without_starts(harness))


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("exit 1", "failed"),
        ("echo nonsense", "not a process"),
        ("printf '1 0 1 S init'", "partial"),
        ("printf '1 0 1 S \\377\\n'", "not UTF-8"),
        ("sleep 60", "too long"),
        ("yes '1 0 1 S x'", "over"),
        ("true", "partial"),
    ],
)
def test_ps_that_is_not_whole_is_no_listing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, why: str
) -> None:
    fake = tmp_path / "ps"
    fake.write_text(f"#!/bin/sh\n{script}\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(ps, "BUDGET_S", 0.5 if why == "too long" else 10.0)
    harness = Harness(Identity(os.getpid(), 0), 0, (), None, LaunchRecord(()), frozenset())
    with pytest.raises(CensusError, match=why):
        by_ps(harness)
