"""Starting a host: the one door through which every harness begins."""

import asyncio
import functools
import json
import logging
import os
import secrets
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from acpmux.census import table
from acpmux.census.sockets import listening
from acpmux.errors import HostLost, LaunchFailed
from acpmux.host import record
from acpmux.host.spec import Spec, encode, nameless
from acpmux.model.ids import HostId, HostSeq
from acpmux.model.process import Role
from acpmux.paths import Paths, private_folder
from acpmux.ports import HostEvents, LaunchSpec
from acpmux.runtime import orphans
from acpmux.runtime.descriptors import give_back
from acpmux.runtime.hostlink import UnixHostLink
from acpmux.runtime.tasks import Tasks

log = logging.getLogger(__name__)

READY_BUDGET_S = 20.0  # two starts of Python and 3 s for the configuration; a machine under load takes its time
GONE_BUDGET_S = 2.0  # a host that said why it could not start ends at once
DYING_BUDGET_S = 0.5  # the link of a host that dies breaks a moment before it is gone
LINK_BUDGET_S = 5.0  # it listens before it says that it is ready
RELINK_S, RELINK_LONG_S = 0.05, 10.0  # between tries, the first ones and the later ones
REFUSED_TIMES = 3  # a host that hangs up before its welcome is dying, or of a version that is not ours


class UnixHostLauncher:
    """Implements `ports.HostLauncher`.

    A host outlives the daemon: it has a session of its own and needs no pipe of ours.
    """

    def __init__(self, paths: Paths, tasks: Tasks, descriptors: int | None = None) -> None:
        """`descriptors` is the soft limit that a host begins with; None leaves it as the daemon's."""
        self._paths = paths
        self._descriptors = descriptors
        self._tasks = tasks

    async def start(self, spec: LaunchSpec, events: HostEvents) -> UnixHostLink:
        """Nothing is left of a start that fails or is cancelled half-way.

        A host can only be ended once it has said that it is there, so a start that is cancelled goes on until then.
        """
        starting = self._tasks.spawn(f"start:{spec.host_id}", self._start(spec, events))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            await asyncio.wait({starting})
            if not starting.cancelled() and starting.exception() is None:
                await starting.result().give_up("its start was cancelled")
            raise

    async def _start(self, spec: LaunchSpec, events: HostEvents) -> UnixHostLink:
        token = secrets.token_hex(16)
        folder = self._paths.host_folder(spec.host_id)
        private_folder(folder)
        socket_path = self._paths.host_socket(spec.host_id)
        orders = encode(_orders(spec, folder, socket_path, token))
        process = await asyncio.to_thread(self._spawn, orders)
        gone = self._tasks.spawn(f"host:{spec.host_id}", self._reap(process, folder))
        try:
            await _ready(process)
        except LaunchFailed:
            await asyncio.wait({gone}, timeout=GONE_BUDGET_S)
            raise
        try:
            end = functools.partial(self._end, spec.host_id, folder, gone)
            addresses = (str(socket_path), nameless(spec.host_id))
            link = UnixHostLink(events, token, gone, end, self._again(addresses, gone))
            await _connect(addresses, link)
            return link
        except LaunchFailed:
            await self._end(spec.host_id, folder, gone)
            raise

    async def adopt(self, host_id: HostId, after: HostSeq, events: HostEvents) -> UnixHostLink | None:
        folder = self._paths.host_folder(host_id)
        told = await asyncio.to_thread(record.read_record, str(folder)) or {}
        alive = told.get("leader") and not await asyncio.to_thread(record.lock_is_free, str(folder))
        if told.get("bootId") == table.boot_id() and alive:
            (host_pid, _), (pid, start) = told["host"], told["leader"]
            gone = self._tasks.spawn(f"host:{host_id}", self._watch(int(host_pid), folder))
            link = UnixHostLink(
                events,
                str(told["token"]),
                gone,
                functools.partial(self._end, host_id, folder, gone),
                self._again((str(told["socket"]), nameless(host_id)), gone),
                after,
                {"pid": pid, "start": start, "host_pid": host_pid},
            )
            trying = link.reconnect()
            await asyncio.wait({trying}, timeout=LINK_BUDGET_S)
            if not trying.done():
                log.warning("host does not answer and is kept host=%s pid=%s", host_id, host_pid)
            if not trying.done() or trying.result():
                return link
            log.warning("host not adopted host=%s", host_id)
        await _clear(folder)
        return None

    async def left_running(self, marks: Sequence[str]) -> list[Mapping[str, Any]]:
        return await asyncio.to_thread(_left_running, marks)

    async def end_left(self, marks: Sequence[str]) -> list[Any]:
        return await orphans.end_left(marks)

    def _again(
        self, addresses: tuple[str, str], gone: "asyncio.Future[None]"
    ) -> Callable[[UnixHostLink], "asyncio.Task[bool]"]:
        return lambda link: self._tasks.spawn("relink", _relink(addresses, link, gone))

    def _end(self, host_id: HostId, folder: Path, gone: "asyncio.Future[None]") -> "asyncio.Task[None]":
        return self._tasks.spawn(f"lost:{host_id}", _over(folder, gone))

    def _spawn(self, orders: bytes) -> "subprocess.Popen[bytes]":
        log_path = self._paths.logs / "hosts.log"
        log_fd = os.open(log_path, os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        try:
            process = subprocess.Popen(
                orphans.host_program("__main__"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log_fd,
                start_new_session=True,
                cwd="/",
            )
        finally:
            os.close(log_fd)
        assert process.stdin is not None
        if self._descriptors is not None:  # before its orders: it has started nothing yet
            give_back(process.pid, self._descriptors)
        try:
            process.stdin.write(orders)
            process.stdin.close()
        except BrokenPipeError:
            pass  # it ended already; what it said or did not say is read next
        return process

    async def _watch(self, pid: int, folder: Path) -> None:
        """Waits for the end of a host that is not our child: it holds its lock, so the pid is its own."""
        await _exit_of(pid)
        await _clear(folder)

    async def _reap(self, process: "subprocess.Popen[bytes]", folder: Path) -> None:
        """Waits for the host's end without a thread or a poll, then takes its folder away."""
        try:
            await _exit_of(process.pid)
            process.wait()
            await _clear(folder)
        finally:
            if process.stdout is not None:
                process.stdout.close()


def _left_running(marks: Sequence[str]) -> list[Mapping[str, Any]]:
    rows = table.carriers([mark.encode() for mark in marks])
    ports = listening([row.pid for row in rows])
    return [table.told(row, Role.LEFT_RUNNING, ports=ports.get(row.pid)) for row in rows]


async def _exit_of(pid: int) -> None:
    loop = asyncio.get_running_loop()
    exited = loop.create_future()
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    loop.add_reader(fd, lambda: exited.done() or exited.set_result(None))
    try:
        await exited
    finally:
        loop.remove_reader(fd)
        os.close(fd)


async def _clear(folder: Path) -> None:
    """The host has exited. One that did not say how its harness ended has crashed, and may have left it running."""
    told = await asyncio.to_thread(record.read_record, str(folder))
    if told is not None and told.get("outcome") is None:
        how = await orphans.end_host(folder)
        log.warning("host crashed host=%s remains=%s", folder.name, how)
    await asyncio.to_thread(orphans.remove, folder)


async def _over(folder: Path, gone: "asyncio.Future[None]") -> None:
    """Its link is lost: a host that is dying is waited for, one that lives on is ended. Nothing is left after it."""
    await asyncio.wait({gone}, timeout=DYING_BUDGET_S)
    if not gone.done():
        how = await orphans.end_host(folder)
        log.warning("host out of reach host=%s ended=%s", folder.name, how)
        await asyncio.wait({gone}, timeout=GONE_BUDGET_S)


def _orders(spec: LaunchSpec, folder: Path, socket_path: Path, token: str) -> Spec:
    return Spec(
        host_id=spec.host_id,
        session_id=spec.session_id,
        folder=str(folder),
        socket=str(socket_path),
        token=token,
        command=spec.command,
        cwd=spec.cwd,
        env=dict(spec.env),
        anatomy=spec.anatomy,
        servers=spec.servers,
        configs=spec.configs,
        configs_at=spec.configs_at,
        marker_required=spec.marker_required,
        retire_signal=spec.retire_signal,
        direct=spec.direct,
        daemon_pid=os.getpid(),
    )


async def _ready(process: "subprocess.Popen[bytes]") -> None:
    """Reads the one line a host says when it listens. Raises: LaunchFailed."""
    assert process.stdout is not None
    try:
        async with asyncio.timeout(READY_BUDGET_S):
            line = await _line(process.stdout.fileno())
    except TimeoutError:
        raise LaunchFailed(f"the agent's host did not start within {READY_BUDGET_S:g} s; see logs/hosts.log") from None
    try:
        told: dict[str, Any] = json.loads(line)
    except ValueError:
        raise LaunchFailed("the agent's host ended at its start; see logs/hosts.log") from None
    if "error" in told:
        raise LaunchFailed(str(told["error"].get("message")))


async def _line(fd: int) -> bytes:
    """Everything up to a newline or the end, read as it comes."""
    loop = asyncio.get_running_loop()
    os.set_blocking(fd, False)
    readable = asyncio.Event()
    loop.add_reader(fd, readable.set)
    data = b""
    try:
        while b"\n" not in data:
            await readable.wait()
            readable.clear()
            chunk = os.read(fd, 65536)
            if not chunk:
                break
            data += chunk
    finally:
        loop.remove_reader(fd)
    return data


async def _relink(addresses: tuple[str, str], link: UnixHostLink, gone: "asyncio.Future[None]") -> bool:
    """Tries until the host answers, ever less often. False when it has gone, or hangs up on us again and again."""
    pause_s, refused = RELINK_LONG_S if link.breaks_each_time else 0.0, 0
    while refused < REFUSED_TIMES:
        await asyncio.wait({gone}, timeout=pause_s)
        if gone.done():
            return False
        try:
            await _connect(addresses, link)
            return True
        except LaunchFailed as error:
            refused += isinstance(error.__context__, HostLost)
        pause_s = min(RELINK_LONG_S, max(RELINK_S, pause_s * 2))
    return False


async def _connect(addresses: tuple[str, str], link: UnixHostLink) -> None:
    """Raises: LaunchFailed."""
    link.connecting()
    try:
        async with asyncio.timeout(LINK_BUDGET_S):
            try:
                await asyncio.get_running_loop().create_unix_connection(lambda: link, addresses[0])
            except OSError:  # somebody took the file away
                await asyncio.get_running_loop().create_unix_connection(lambda: link, addresses[1])
            await link.welcomed(LINK_BUDGET_S)
    except (OSError, TimeoutError, HostLost) as error:
        raise LaunchFailed(f"the agent's host can't be reached: {error}") from None
