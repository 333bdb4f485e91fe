"""The host with real harnesses below it, spoken to over its own link."""

import asyncio
import json
import os
import resource
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from acpmux.census import table
from acpmux.census.table import carriers, identity_of, read_stat
from acpmux.errors import HostLost, LaunchFailed
from acpmux.host import child
from acpmux.host.spec import Spec
from acpmux.model.ids import HostId, HostSeq, SessionId
from acpmux.model.process import Identity, Server
from acpmux.paths import Paths
from acpmux.ports import LaunchSpec
from acpmux.runtime import launcher
from acpmux.runtime.hostlink import UnixHostLink
from acpmux.runtime.launcher import UnixHostLauncher
from acpmux.runtime.orphans import end_orphans
from acpmux.runtime.tasks import Tasks
from acpmux.wire.hostframe import encode

DETACH = """
import ctypes, os, signal, sys, time
if os.fork() == 0:
    os.setpgid(0, 0)
    null = os.open(os.devnull, os.O_RDWR)
    said = os.dup(1)
    for fd in range(3):
        os.dup2(null, fd)
    while os.getppid() != int(sys.argv[1]):
        time.sleep(0.01)
    if sys.argv[2] == "parent's death":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    os.write(said, b"%d\\n" % os.getpid())
    os.close(said)
    os.kill(os.getpid(), signal.SIGSTOP) if sys.argv[2] == "stopped" else None
    time.sleep(300)
"""
AGENT = (
    "DETACH = "
    + repr(DETACH)
    + r"""
import os, signal, subprocess, sys, time
print("up", flush=True)
for line in sys.stdin:
    verb, _, rest = line.strip().partition(" ")
    if verb == "say": print(rest, flush=True)
    if verb == "part": sys.stdout.write(rest); sys.stdout.flush()
    if verb == "child": print(subprocess.Popen(rest.split(), start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).pid, flush=True)
    if verb == "server": print(subprocess.Popen(rest.split(), env={**os.environ, "ACPMUX_MCP": "n:nap"}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL).pid, flush=True)
    if verb == "servers": print(subprocess.Popen([sys.executable, "-S", "-c", rest], start_new_session=True, env={**os.environ, "ACPMUX_MCP": "n:nap"}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL).pid, flush=True)
    if verb == "leave": subprocess.run([sys.executable, "-S", "-c", DETACH, *rest.split(" ", 1)], env={**os.environ, "ACPMUX_MCP": "n:nap"})
    if verb == "ignore": signal.signal(signal.SIGTERM, signal.SIG_IGN); print("ignoring", flush=True)
    if verb == "big": print("x" * int(rest), flush=True)
    if verb == "flooder": print(subprocess.Popen(["yes", "x" * 4000], start_new_session=True, stdin=subprocess.DEVNULL).pid, flush=True)
    if verb == "deaf": print("deaf", flush=True); time.sleep(300)
    if verb == "exit": print("bye", file=sys.stderr, flush=True); sys.exit(int(rest))
"""
)
NAP = Server("nap", "sleep", ("300",), "n:nap", "acp")


class Ears:
    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.numbers: list[int] = []
        self.gone: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        self.told_freed = asyncio.Event()
        self.why_lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._more = asyncio.Event()

    def line(self, host_seq: HostSeq, data: bytes) -> None:
        self.lines.append(data)
        self.numbers.append(host_seq)
        self._more.set()

    def exited(self, header: Mapping[str, Any]) -> None:
        self.gone.set_result(header)

    def ended(self, header: Mapping[str, Any]) -> None: ...
    def freed(self) -> None:
        self.told_freed.set()

    def lost(self, reason: str) -> None:
        self.why_lost.set_result(reason)

    async def count(self, number: int) -> bytes:
        while len(self.lines) < number:
            self._more.clear()
            await asyncio.wait_for(self._more.wait(), 20)
        return self.lines[number - 1]


class Run:
    def __init__(self, link: UnixHostLink, ears: Ears, paths: Paths) -> None:
        self.link, self.ears, self.paths = link, ears, paths

    async def tell(self, text: str) -> bytes:
        """Tells the agent something and returns the line it answers."""
        wanted = len(self.ears.lines) + 1
        self.link.send(text.encode())
        return await self.ears.count(wanted)

    async def retire(self, after: int | None = None, grace_ms: int = 3000) -> Mapping[str, Any]:
        last = len(self.ears.lines) if after is None else after
        return await self.link.request("retire", 20, after=last, grace_ms=grace_ms, park=False)

    async def end(self, everything: bool = True) -> Mapping[str, Any]:
        return await self.link.request("end", 20, all=everything)


def play(tmp_path: Path, story: Callable[[Run], Awaitable[None]], **more: Any) -> None:
    async def run() -> None:
        paths, tasks = Paths(tmp_path / "home"), Tasks()
        paths.prepare()
        ears = Ears()
        command = more.pop("command", (sys.executable, "-S", "-c", AGENT))
        spec = LaunchSpec(HostId("h1"), SessionId("s1"), command, str(tmp_path), env(), (), (NAP,), **more)
        try:
            link = await UnixHostLauncher(paths, tasks).start(spec, ears)
            await ears.count(1)
            await story(Run(link, ears, paths))
            with suppress(HostLost):  # some stories end the host
                await link.request("end", 20, all=True)
            await link.close()
        finally:
            await tasks.close()

    asyncio.run(run())


def env() -> dict[str, str]:
    keep = {key: os.environ[key] for key in ("PATH", "ACPMUX_TEST_RUN")}
    return keep | {"ACPMUX_HOST": "h1", "ACPMUX_SESSION_ID": "s1"}


async def stopped(pid: int) -> None:
    """Stops a process and returns when it has: a stop is not at once."""
    os.kill(pid, signal.SIGSTOP)
    while (stat := read_stat(pid)) is None or stat.state != "T":
        await asyncio.sleep(0.005)


def alive(pid: int | bytes) -> bool:
    return identity_of(int(pid)) is not None


def test_clear_retirement_ends_harness_and_server_and_says_whom(tmp_path: Path) -> None:
    async def story(run: Run) -> None:
        server = int(await run.tell("server sleep 300"))
        answer = await run.retire()
        assert answer["t"] == "retired"
        assert {row[0]: row[3] for row in answer["ended"]} == {run.link.leader.pid: "term", server: "term"}
        assert not alive(server) and not alive(run.link.leader.pid)
        assert answer["freed_bytes"] > 0 and answer["left"] == []

    play(tmp_path, story)


def test_child_of_somebody_elses_is_named_and_both_live_on(tmp_path: Path) -> None:
    async def story(run: Run) -> None:
        child = int(await run.tell("child sleep 300"))
        answer = await run.retire()
        assert answer["kind"] == "held" and answer["blockers"][0][0] == child
        assert await run.tell("say still here") == b"still here"
        assert alive(child)
        os.kill(child, signal.SIGKILL)
        await asyncio.wait_for(run.ears.told_freed.wait(), 5)

    play(tmp_path, story)


def few_descriptors(run: Run, count: int) -> None:
    _, most = resource.prlimit(run.link.host_pid, resource.RLIMIT_NOFILE)
    resource.prlimit(run.link.host_pid, resource.RLIMIT_NOFILE, (count, most))


async def crowd(run: Run, count: int = 40) -> list[int]:
    """Children of a server, more than the host, which is left few descriptors, can open."""
    few_descriptors(run, 40)
    code = f"import os, time; [os.fork() or time.sleep(300) for _ in range({count})]; time.sleep(300)"
    server = int(await run.tell(f"servers {code}"))
    while len(found := [row.pid for row in table.best_effort(server)]) < count:
        await asyncio.sleep(0.05)
    return [server, *found]


def test_retirement_that_can_not_open_everybody_refuses_before_the_first_signal(tmp_path: Path) -> None:
    async def story(run: Run) -> None:
        counted = await crowd(run)
        answer = await run.retire()
        assert (answer["kind"], answer["retry"]) == ("unknown", True) and "descriptors" in answer["reason"]
        assert all(map(alive, counted)) and await run.tell("say on") == b"on"
        few_descriptors(run, 200)
        answer = await run.retire()
        assert {row[0] for row in answer["ended"]} == {run.link.leader.pid, *counted}
        assert not any(map(alive, counted))

    play(tmp_path, story)


def test_stop_that_can_not_open_everybody_still_ends_everybody(tmp_path: Path) -> None:
    async def story(run: Run) -> None:
        counted = await crowd(run)
        answer = await run.end()
        assert {row[0] for row in answer["ended"]} == {run.link.leader.pid, *counted} and answer["left"] == []
        assert not any(map(alive, counted))

    play(tmp_path, story)


@pytest.mark.parametrize("kind", ["plain", "stopped", "parent's death"])
@pytest.mark.parametrize("way", ["retirement", "stop", "exit"])
def test_host_outlives_work_that_left_the_tree_and_then_goes(tmp_path: Path, kind: str, way: str) -> None:
    async def story(run: Run) -> None:
        host = run.link.host_pid
        work = int(await run.tell(f"leave {host} {kind}"))
        while len({os.readlink(fd) for fd in Path(f"/proc/{work}/fd").iterdir()}) > 1:
            await asyncio.sleep(0.01)  # it has said its pid, and holds the agent's output still
        told = {"retirement": run.retire, "stop": lambda: run.end(False)}
        answer = await (told[way]() if way in told else exits(run))
        assert [row[0] for row in answer.get("left", ())] == [work], answer
        await run.link.close()
        await asyncio.sleep(0.2)
        assert alive(work) and alive(host)
        os.kill(work, signal.SIGKILL)
        while alive(host):
            await asyncio.sleep(0.01)

    async def exits(run: Run) -> Mapping[str, Any]:
        run.link.send(b"exit 0")
        return await run.ears.gone

    play(tmp_path, story)


def test_host_that_outlives_work_goes_when_a_service_manager_says_so(tmp_path: Path) -> None:
    async def story(run: Run) -> None:
        host = run.link.host_pid
        work = int(await run.tell(f"leave {host} plain"))
        await asyncio.sleep(0.1)
        assert (await run.retire())["t"] == "retired"
        await run.link.close()
        os.kill(host, signal.SIGTERM)
        while alive(host):
            await asyncio.sleep(0.01)
        assert alive(work)
        os.kill(work, signal.SIGKILL)

    play(tmp_path, story)


def test_newer_output_refuses(tmp_path: Path) -> None:
    async def story(run: Run) -> None:
        await run.tell("say one")
        assert (await run.retire(after=1))["kind"] == "output"

    play(tmp_path, story)


def test_line_that_has_only_begun_refuses(tmp_path: Path) -> None:
    async def story(run: Run) -> None:
        run.link.send(b"part half a line")
        await run.tell("say x")
        run.link.send(b"part half")
        await asyncio.sleep(0.1)
        assert (await run.retire())["kind"] == "output"

    play(tmp_path, story)


def test_input_the_harness_has_not_read_refuses(tmp_path: Path) -> None:
    async def story(run: Run) -> None:
        await stopped(run.link.leader.pid)  # until then it may still take the line
        run.link.send(b"say unread")
        assert (await run.retire())["kind"] == "unwritten"
        os.kill(run.link.leader.pid, signal.SIGCONT)
        await run.ears.count(2)

    play(tmp_path, story)


def test_cancel_before_the_first_signal_refuses_and_the_harness_goes_on(tmp_path: Path) -> None:
    async def story(run: Run) -> None:
        await stopped(run.link.host_pid)  # so that it finds both when it goes on
        asked = asyncio.ensure_future(run.retire())
        await asyncio.sleep(0)
        run.link.retire_cancel()
        os.kill(run.link.host_pid, signal.SIGCONT)
        assert (await asked)["kind"] == "cancelled"
        assert await run.tell("say on") == b"on"
        assert (await run.retire())["t"] == "retired"

    play(tmp_path, story)


def test_cancel_after_the_first_signal_cuts_the_grace(tmp_path: Path) -> None:
    async def story(run: Run) -> None:
        await run.tell("ignore")
        asked = asyncio.ensure_future(run.retire(grace_ms=15000))
        await asyncio.sleep(0.2)
        run.link.retire_cancel()
        answer = await asyncio.wait_for(asked, 3)
        assert [row[3] for row in answer["ended"]] == ["kill"]

    play(tmp_path, story)


def test_stop_during_a_retirement_waits_it_out(tmp_path: Path) -> None:
    async def story(run: Run) -> None:
        await run.tell("ignore")
        asked = asyncio.ensure_future(run.retire(grace_ms=15000))
        await asyncio.sleep(0.2)
        assert (await run.end())["t"] == "ended"
        assert (await asked)["t"] == "retired"

    play(tmp_path, story)


def test_stop_ends_children_in_sessions_of_their_own(tmp_path: Path) -> None:
    async def story(run: Run) -> None:
        child = int(await run.tell("child sleep 300"))
        answer = await run.end(False)
        assert child in {row[0] for row in answer["ended"]} and not alive(child)

    play(tmp_path, story)


def test_harness_that_exits_by_itself_is_told_with_its_code_and_its_servers_are_cleaned(tmp_path: Path) -> None:
    async def story(run: Run) -> None:
        server = int(await run.tell("server sleep 300"))
        other = int(await run.tell("child sleep 300"))
        run.link.send(b"exit 7")
        told = await asyncio.wait_for(run.ears.gone, 10)
        assert (told["code"], told["signal"], told["n"]) == (7, None, 3)
        assert "bye" in told["stderr"] and not alive(server)
        assert alive(other) and other in {row[0] for row in told["left"]}
        os.kill(other, signal.SIGKILL)

    play(tmp_path, story)


def test_what_a_server_detached_lives_on_when_the_agent_exits_and_a_counted_server_is_cleaned(tmp_path: Path) -> None:
    async def story(run: Run) -> None:
        work = int(await run.tell(f"leave {run.link.host_pid} plain"))
        server = int(await run.tell("servers import time; time.sleep(300)"))
        verdicts = {row["pid"]: row["verdict"] for row in (await run.link.request("census", 10))["processes"]}
        assert (verdicts[work], verdicts[server]) == ("left-running", "server")
        run.link.send(b"exit 0")
        told = await asyncio.wait_for(run.ears.gone, 10)
        assert [row[0] for row in told["left"]] == [work] and alive(work) and not alive(server)
        os.kill(work, signal.SIGKILL)

    play(tmp_path, story)


def test_lines_are_numbered_without_gaps_and_fifty_megabytes_pass(tmp_path: Path) -> None:
    async def story(run: Run) -> None:
        assert len(await run.tell("big 50000000")) == 50_000_000
        run.link.ack(HostSeq(2))  # until it is stored, no more is handed over
        for number in range(50):
            await run.tell(f"say {number}")
        assert run.ears.numbers == list(range(1, 53))

    play(tmp_path, story)


def test_missing_program_and_folder_are_named(tmp_path: Path) -> None:
    async def story(run: Run) -> None: ...

    with pytest.raises(LaunchFailed, match="'no-such-thing' is not on PATH"):
        play(tmp_path, story, command=("no-such-thing",))


@pytest.mark.parametrize("step", ["_orders", "_ready", "_connect"])
def test_start_that_is_cancelled_leaves_no_host_and_no_harness(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    async def run() -> None:
        reached, real = asyncio.Event(), getattr(launcher, step)
        monkeypatch.setattr(launcher, step, lambda *args: (reached.set(), real(*args))[1])
        paths, tasks = Paths(tmp_path / "home"), Tasks()
        paths.prepare()
        command = (sys.executable, "-S", "-c", AGENT)
        spec = LaunchSpec(HostId("h1"), SessionId("s1"), command, str(tmp_path), env(), (), (NAP,))
        starting = asyncio.ensure_future(UnixHostLauncher(paths, tasks).start(spec, Ears()))
        await reached.wait()
        starting.cancel()
        await asyncio.wait({starting})
        assert starting.cancelled()
        assert carriers(b"ACPMUX_HOST=h1") == [] and list(paths.hosts.iterdir()) == []
        await tasks.close()

    asyncio.run(run())


def test_kill_signal_ends_a_stopped_harness_without_letting_it_run_on(tmp_path: Path) -> None:
    async def story(run: Run) -> None:
        await run.tell("ignore")
        assert (await run.retire())["t"] == "retired"

    play(tmp_path, story, retire_signal="kill")


def test_orphaned_host_is_found_by_its_lock_and_its_harness_ended(tmp_path: Path) -> None:
    async def story(run: Run) -> None:
        server = int(await run.tell("server sleep 300"))
        leader = run.link.leader.pid
        run.link._again = None  # type: ignore[reportPrivateUsage]  # its daemon is gone and links no more
        assert [row[::2] for row in await end_orphans(run.paths)] == [("h1", "ended")]
        assert not alive(server) and not alive(leader)

    play(tmp_path, story)


def test_killed_host_is_told_as_lost_when_nothing_of_its_harness_is_left(tmp_path: Path) -> None:
    async def story(run: Run) -> None:
        server, other = int(await run.tell("server sleep 300")), int(await run.tell("child sleep 301"))
        await run.tell("deaf")  # like an agent that does not exit when its input ends
        os.kill(run.link.host_pid, signal.SIGKILL)
        await asyncio.wait_for(run.ears.why_lost, 20)
        assert not alive(run.link.leader.pid) and not alive(server)
        assert alive(other)  # a crash is no stop: what nobody proved to be the harness's goes on
        os.kill(other, signal.SIGKILL)

    play(tmp_path, story)


def test_harness_that_was_frozen_when_its_host_was_killed_is_ended(tmp_path: Path) -> None:
    async def story(run: Run) -> None:
        leader = run.link.leader.pid
        os.kill(leader, signal.SIGSTOP)
        await stopped(leader)
        os.kill(run.link.host_pid, signal.SIGKILL)
        await asyncio.wait_for(run.ears.why_lost, 20)
        assert not alive(leader)

    play(tmp_path, story)


async def take_the_link(run: Run) -> None:
    """What breaks the daemon's link while both live: somebody with the token links after it, and goes."""
    told = json.loads((run.paths.host_folder(HostId("h1")) / "record.json").read_text())
    reader, writer = await asyncio.open_unix_connection(told["socket"])
    writer.write(encode("hello", token=told["token"], versions=[1, 1], after=0))
    await reader.read(1)
    writer.close()


def test_link_that_breaks_while_both_live_is_made_again_and_no_line_is_lost_or_doubled(tmp_path: Path) -> None:
    async def story(run: Run) -> None:
        host = run.link.host_pid
        for number in range(300):
            run.link.send(f"say {number}".encode())
            if number % 100 == 50:
                await take_the_link(run)
            await asyncio.sleep(0)
        await run.ears.count(301)
        assert run.ears.lines[1:] == [str(number).encode() for number in range(300)]
        assert run.ears.numbers == list(range(1, 302))
        assert run.link.host_pid == host and not run.ears.why_lost.done()
        assert (await run.retire())["t"] == "retired"

    play(tmp_path, story)


def test_what_was_asked_when_the_link_broke_is_answered(tmp_path: Path) -> None:
    async def story(run: Run) -> None:
        told = asyncio.ensure_future(run.link.request("census", 10))
        retired = asyncio.ensure_future(run.retire())
        await take_the_link(run)
        assert (await told)["processes"]
        answer = await retired
        assert answer["t"] == "retired" or (answer["kind"], answer["retry"]) == ("cancelled", True)

    play(tmp_path, story)


def test_retirement_that_is_over_before_the_link_is_made_again_is_told(tmp_path: Path) -> None:
    async def story(run: Run) -> None:
        await run.tell("ignore")  # it ends by KILL after the grace
        retired = asyncio.ensure_future(run.retire(grace_ms=1000))
        await asyncio.sleep(0.3)
        await take_the_link(run)
        assert (await retired)["t"] == "retired"

    play(tmp_path, story)


def test_link_that_breaks_each_time_it_is_made_ends_nothing_and_is_made_again_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acpmux.runtime.launcher.RELINK_LONG_S", 0.5)

    async def story(run: Run) -> None:
        for _ in range(10):
            await take_the_link(run)
            await asyncio.sleep(0.05)
        assert await run.tell("say still here") == b"still here"
        assert alive(run.link.leader.pid) and not run.ears.why_lost.done()

    play(tmp_path, story)


def test_host_that_stands_still_through_many_tries_is_kept_and_linked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(run: Run) -> None:
        monkeypatch.setattr("acpmux.runtime.launcher.LINK_BUDGET_S", 0.2)
        os.kill(run.link.host_pid, signal.SIGSTOP)
        await stopped(run.link.host_pid)
        assert isinstance(run.link._transport, asyncio.Transport)  # type: ignore[reportPrivateUsage]
        run.link._transport.abort()  # type: ignore[reportPrivateUsage]
        await asyncio.sleep(3)  # a dozen tries, none of which is answered
        assert alive(run.link.host_pid) and alive(run.link.leader.pid) and not run.ears.why_lost.done()
        os.kill(run.link.host_pid, signal.SIGCONT)
        assert await run.tell("say still here") == b"still here"

    play(tmp_path, story)


def test_host_that_can_not_write_its_record_starts_nothing(tmp_path: Path) -> None:
    (Paths(tmp_path / "home").host_folder(HostId("h1")) / "record.json.new").mkdir(parents=True)

    async def story(run: Run) -> None:
        raise AssertionError

    with pytest.raises(LaunchFailed, match="Is a directory"):
        play(tmp_path, story, command=("touch", str(tmp_path / "ran")))
    assert not (tmp_path / "ran").exists()


def test_harness_that_can_not_be_written_down_never_runs(tmp_path: Path) -> None:
    def known(leader: Identity) -> None:
        raise OSError("no space")

    command = ("touch", str(tmp_path / "ran"))
    spec = Spec("h", "s", "", "", "", command, "/", env(), (), (), (), "start", True, "term", False, 1)
    with pytest.raises(OSError, match="no space"):
        child.spawn(spec, known)
    assert not (tmp_path / "ran").exists()


def test_killed_hosts_agent_without_its_environment_is_known_by_its_start(tmp_path: Path) -> None:
    async def story(run: Run) -> None:
        await run.tell("deaf")
        os.kill(run.link.host_pid, signal.SIGKILL)
        await asyncio.wait_for(run.ears.why_lost, 20)
        assert not alive(run.link.leader.pid)

    play(tmp_path, story, command=("env", "-i", sys.executable, "-S", "-c", AGENT))


def test_copy_of_a_hosts_folder_proves_nothing(tmp_path: Path) -> None:
    async def story(run: Run) -> None:
        copy = Paths(tmp_path / "copy")
        shutil.copytree(run.paths.home, copy.home, ignore=lambda _, names: [name for name in names if "sock" in name])
        await end_orphans(copy)
        assert alive(run.link.leader.pid) and alive(run.link.host_pid)
        assert not list(copy.hosts.iterdir())

    play(tmp_path, story)


def test_child_that_floods_the_agents_output_keeps_no_host_from_answering(tmp_path: Path) -> None:
    async def story(run: Run) -> None:
        run.link.send(b"flooder")
        await run.ears.count(200)
        told = await asyncio.wait_for(run.retire(), 10)
        assert (told["t"], told["kind"]) == ("refused", "output")
        run.link.send(b"exit 3")
        assert (await asyncio.wait_for(run.ears.gone, 10))["code"] == 3
        assert table.memory_bytes(run.link.host_pid) < 300_000_000
        for row in carriers((b"ACPMUX_HOST=h1",)):  # the host stays for it
            os.kill(row.pid, signal.SIGKILL)

    play(tmp_path, story)


def test_host_that_does_not_answer_is_ended_with_all_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acpmux.runtime.orphans.LINK_BUDGET_S", 0.5)

    async def story(run: Run) -> None:
        host, leader = run.link.host_pid, run.link.leader.pid
        os.kill(host, signal.SIGSTOP)
        await stopped(host)
        await asyncio.wait_for(run.link.give_up("it does not answer"), 20)
        assert run.ears.why_lost.done()
        assert not alive(leader) and not alive(host)

    play(tmp_path, story)


def test_census_shows_every_process_with_its_verdict(tmp_path: Path) -> None:
    async def story(run: Run) -> None:
        server, child = int(await run.tell("server sleep 300")), int(await run.tell("child sleep 301"))
        told = await run.link.request("census", 10)
        verdicts = {row["pid"]: row["verdict"] for row in told["processes"]}
        assert verdicts == {run.link.leader.pid: "harness", server: "server", child: "other"}
        assert told["whole"] and all(row["rssBytes"] > 0 for row in told["processes"])
        assert json.dumps(told)

    play(tmp_path, story)


def test_settle_waits_until_each_server_is_there_and_quiet(tmp_path: Path) -> None:
    async def story(run: Run) -> None:
        asked = asyncio.ensure_future(run.link.request("settle", 10, quiet_ms=200, budget_ms=5000))
        await asyncio.sleep(0.3)
        assert not asked.done()
        await run.tell("server sleep 300")
        told = await asked
        assert told["seen"] == ["nap"] and told["missing"] == [] and told["waited_ms"] >= 450

    play(tmp_path, story)
