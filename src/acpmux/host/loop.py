"""The host's life: start the harness, serve the link, and go when both are over."""

import json
import os
import secrets
import selectors
import signal
import socket
import sys
from typing import Any

from acpmux.census import table
from acpmux.census.launch import Launch, joined, read_launch, servers_of
from acpmux.host import child, record, retire
from acpmux.host import spec as specs
from acpmux.host.core import Outbox
from acpmux.host.duties import Duties
from acpmux.host.link import Link, Listener
from acpmux.host.pipes import Pipes
from acpmux.host.signals import kill_child, send_group
from acpmux.host.timers import Timers
from acpmux.model.process import Harness, Verdict
from acpmux.wire import hostframe

FIRST_LINK_S = 15.0  # a daemon that started us links at once; one that never does has gone
BROKEN_S = 1.0  # a harness that ends closes its pipes a moment before
ALONE_S = 86_400.0  # an ended host that nobody fetches: its outcome is in its record, its last lines go with it


class Host:
    """One incarnation.

    `answer` goes to the daemon when one is linked; what must not be lost is also kept as `outcome`.
    """

    def __init__(self, spec: specs.Spec, launch: Launch, born: child.Child) -> None:
        self.spec = spec
        self.launch = launch
        self.child = born
        self.selector = selectors.DefaultSelector()
        self.timers = Timers()
        self.outbox = Outbox()
        self.pipes = Pipes(born, self.outbox, self.selector, self.pump, self._broken)
        self.harness = Harness(
            born.identity,
            born.identity.pid,
            spec.anatomy,
            None,
            launch.record,
            frozenset({os.getpid(), spec.daemon_pid}),
            spec.env.get("PATH", ""),
            spec.marker_required,
        )
        self.link: Link | None = None
        self.state = "running"
        self.outcome: dict[str, Any] | None = None
        self.over = self._leaving = False
        self.duties = Duties(self)
        self._candidates: list[Link] = []
        addresses = (spec.socket, specs.nameless(spec.host_id))
        self._listeners = [Listener(address, self.selector, self._arrived) for address in addresses]
        self.selector.register(born.pidfd, selectors.EVENT_READ, self._leader_gone)
        self._wake_read, wake_write = os.pipe()
        for fd in (self._wake_read, wake_write):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _noted)
        signal.signal(signal.SIGTERM, self._told_to_end)
        self.selector.register(self._wake_read, selectors.EVENT_READ, self._woken)
        self.linked = False
        self._unlinked = self.timers.after(FIRST_LINK_S, self._nobody_came)

    def run(self) -> None:
        """Serves until all is over and told, or nobody is there to be told."""
        while not self.over:
            for key, mask in self.selector.select(self.timers.wait_s()):
                key.data(key, mask)
            self.timers.run_due()
        for listener in self._listeners:
            listener.close()

    def _nobody_came(self) -> None:
        self.linked = True
        self.duties.end_alone()
        self._go_if_over()

    def _told_to_end(self, *_: Any) -> None:
        self.over = self._leaving
        self.timers.after(0, self.duties.end_alone)

    # ------------------------------------------------------------ the link

    def _arrived(self, connection: socket.socket) -> None:
        self._candidates.append(Link(connection, self.selector, self._frame, self._lost, self.pump))

    def _frame(self, link: Link, frame: hostframe.Frame) -> None:
        if link is self.link:
            self.duties.perform(frame)
        elif frame.kind == "hello":
            self._hello(link, frame.header)
        else:
            link.close()

    def _hello(self, link: Link, header: dict[str, Any]) -> None:
        low, high = header.get("versions", (0, 0))
        token = str(header.get("token", "")).encode()
        if not secrets.compare_digest(token, self.spec.token.encode()) or not low <= hostframe.VERSION <= high:
            link.close()
            return
        link.proven = self.linked = True
        self.timers.cancel(self._unlinked)
        if self.link is not None:
            self.link.close()
        self._candidates.remove(link)
        self.link = link
        self.outbox.resume(int(header.get("after", 0)))
        link.send(
            "welcome",
            version=hostframe.VERSION,
            host_pid=os.getpid(),
            pid=self.child.identity.pid,
            start=self.child.identity.start,
            launch=self.launch_told(),
            state=self.state,
            outcome=self.outcome,
            taken=self.duties.taken,
        )
        self.pump()
        if self.outcome is not None:
            self.outcome = {**self.outcome, "id": 0}  # whoever asked for it has gone
            self._tell_outcome()

    def _lost(self, link: Link) -> None:
        if link is self.link:
            self.link = None
            if self.spec.direct and self.state == "running":
                self.timers.after(0, self.duties.end_alone)
            self._go_if_over()
        elif link in self._candidates:
            self._candidates.remove(link)

    def pump(self) -> None:
        """Hands the link as many lines as it has room for."""
        while self.link is not None and self.link.roomy:
            line = self.outbox.next()
            if line is None:
                return
            self.link.send("out", line[1], n=line[0])

    def answer(self, kind: str, /, **header: Any) -> None:
        if self.link is not None:
            self.link.send(kind, **header)

    def conclude(self, state: str, kind: str, /, **header: Any) -> None:
        """The harness has ended: its last lines first, then how; also for whoever links later."""
        self.pipes.finish()
        self.state = state
        self.outcome = {"t": kind, **header}
        try:
            record.write_record(self.spec, self.child.identity, self.outcome)
        except OSError as error:  # a full disk, a folder that was taken away: the link still tells it
            print(f"the record of {self.spec.host_id} is not written: {error}", file=sys.stderr)
        self._tell_outcome()
        self.timers.after(ALONE_S, self.leave)

    def _tell_outcome(self) -> None:
        self.pump()
        asked = self.outcome is not None and self.outcome["t"] == "ended" and self.outcome["id"]
        if self.link is not None and self.outbox.sent < self.outbox.last and not asked:  # who ends it wants no more
            self.timers.after(0.01, self._tell_outcome)  # the link is full: the outcome must not overtake the lines
        elif self.link is not None and self.outcome is not None:
            told = dict(self.outcome)
            self.link.send(told.pop("t"), **told)
        else:
            self._go_if_over()

    def leave(self) -> None:
        """The harness is gone and nothing more is asked of us."""
        self._leaving = True
        if self.link is not None:
            self.link.close()
        self._go_if_over()

    def _go_if_over(self) -> None:
        """Nobody is linked and the harness is gone: what is left is what it said, which waits for the next daemon.

        Where no session ever took it, nobody will ask. Work that left the harness's tree may die of our exit (an
        orphaned group that is stopped gets SIGHUP, setpgid(2); PR_SET_PDEATHSIG can't be seen): it is outlived.
        """
        told = self.linked and (not self.outbox.kept_bytes or not self.spec.session_id)
        if (self._leaving or (self.outcome is not None and self.link is None and told)) and _childless():
            self.over = True

    # ------------------------------------------------------------ processes

    def _broken(self, what: str) -> None:
        self.timers.after(BROKEN_S, lambda: self.duties.broken(what))

    def _leader_gone(self, *_: Any) -> None:
        self.selector.unregister(self.child.pidfd)
        self.duties.leader_gone()

    def _woken(self, *_: Any) -> None:
        try:
            os.read(self._wake_read, 65536)
        except OSError:
            pass
        self.reap()
        self._go_if_over()

    def reap(self) -> None:
        """Reaps what the host adopted, pid by pid, and never the leader: its pid must stay its own until the end."""
        for pid in table.children(os.getpid()):
            if pid != self.child.identity.pid:
                try:
                    os.waitpid(pid, os.WNOHANG)
                except OSError:
                    continue

    def reap_leader(self) -> tuple[int | None, int | None]:
        """Its exit code or the signal that ended it. Called once, when nothing is left to be signalled."""
        try:
            _, status = os.waitpid(self.child.identity.pid, 0)
        except OSError:
            return None, None
        return (None, os.WTERMSIG(status)) if os.WIFSIGNALED(status) else (os.WEXITSTATUS(status), None)

    # ------------------------------------------------------------ the launch record

    def read_launch_again(self) -> None:
        """For an agent that reads its configuration with the session request that is written next."""
        self._set_launch(read_launch(self.spec.servers, self.spec.launching, kill_child))

    def _set_launch(self, launch: Launch) -> None:
        self.launch = launch
        self.harness = self.harness._replace(launch=launch.record)

    def take(self, header: dict[str, Any]) -> None:
        """Kept ready until now, it belongs to a session; what the launch names is read for that one's folder."""
        self.spec = self.spec._replace(
            session_id=str(header["session"]),
            cwd=str(header["cwd"]),
            servers=servers_of(header["servers"]),
            direct=bool(header["direct"]),
        )
        if self.spec.configs_at == "session":
            self.read_launch_again()
        else:
            launching = self.spec.launching._replace(configs=())
            self._set_launch(joined(read_launch(self.spec.servers, launching, kill_child), self.launch))
        record.write_record(self.spec, self.child.identity)

    def launch_told(self) -> dict[str, Any]:
        """What the daemon shows of the record: no command and no environment."""
        record = self.launch.record
        if record is None:
            return {"problems": ["what the agent's configuration names is not known"], "places": [], "servers": []}
        servers = [[server.name, server.source] for server in record.servers]
        return {"problems": list(record.problems), "places": list(record.places), "servers": servers}

    # ------------------------------------------------------------ retire.World

    def drain(self) -> None:
        if not self.outbox.full:
            self.pipes.drain()
        self.pump()
        if self.link is not None:
            self.link.poll()

    def last_line(self) -> int:
        return self.outbox.last

    def partial(self) -> bool:
        return self.outbox.partial or self.pipes.unheard

    def unwritten(self) -> bool:
        return self.pipes.unread

    def used_again(self) -> bool:
        return self.duties.cancelled or self.link is None

    def verdict(self, frozen: bool = False) -> Verdict:
        return retire.census(self.harness, os.getpid(), frozen, self.launch.forms)


def _childless() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False


def _noted(*_: Any) -> None:
    """The wake-up descriptor tells the loop."""


def main() -> None:
    """Reads the orders from standard input, starts the harness, says so on standard output, and serves."""
    spec = specs.decode(sys.stdin.buffer.readline())
    try:
        os.umask(0o077)
        lock = record.take_lock(spec.folder)
        record.write_record(spec, None)
        launch = read_launch(spec.servers, spec.launching, kill_child)
        host = _begin(spec, launch)
    except (child.SpawnFailed, OSError) as error:
        _say({"error": {"code": "launch_failed", "message": str(error)}})
        sys.exit(1)
    _say({"ready": True})
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    host.run()
    os.close(lock)


def _begin(spec: specs.Spec, launch: Launch) -> Host:
    """Raises: SpawnFailed, OSError; then no harness is left."""
    born = child.spawn(spec, lambda leader: record.write_record(spec, leader))
    try:
        return Host(spec, launch, born)
    except OSError:
        send_group(born.identity, signal.SIGKILL)
        os.waitpid(born.identity.pid, 0)
        raise


def _say(told: dict[str, Any]) -> None:
    """A daemon that has died meanwhile hears nothing; the next one, or nobody for a while, decides."""
    try:
        os.write(1, json.dumps(told).encode() + b"\n")
    except OSError:
        return
