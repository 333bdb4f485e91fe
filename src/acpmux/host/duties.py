"""What a daemon may ask of a host, and what a host does when its harness goes by itself."""

import os
import selectors
import signal
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from acpmux.census import table
from acpmux.census.listing import list_harness
from acpmux.census.sockets import listening
from acpmux.census.tree import below
from acpmux.census.verdict import command_text, judge
from acpmux.host import retire
from acpmux.host.ending import CUT_GRACE_S, Ending, Outcome
from acpmux.host.settle import Settle
from acpmux.host.signals import kill_child, open_targets, open_targets_of, send, send_group
from acpmux.model.process import Blocker, Identity, Judged, Listing, Role, Row, Unknown
from acpmux.wire.hostframe import Frame

if TYPE_CHECKING:
    from acpmux.host.loop import Host

KEYS = 10_000  # of lines that a later daemon might send again; a turn has a prompt and a few answers
CORE_S = 1.0  # MarkCore waits so long for a table that holds still
CORE_POLL_S = 0.02
TOLD_ROWS = 5000  # so many processes, with TOLD_CHARS of their commands in all, are far from a frame's limit
TOLD_CHARS = 512 * 1024
TOLD_LEAST = 40
TOLD_BLOCKERS = 1000
_OURS = (Role.HARNESS, Role.SERVER, Role.UNDER_SERVER)


class Duties:
    """One method a frame.

    `cancelled`: the session is used again. `taken`: the number of the harness's last input line.
    """

    def __init__(self, host: "Host") -> None:
        self._host = host
        self._known: frozenset[Identity] = frozenset()
        self._ending: Ending | None = None
        self._then: Callable[[], None] | None = None
        self._watched: set[int] = set()
        self._keys: dict[str, None] = {}
        self.cancelled = False
        self.taken = 0

    def perform(self, frame: Frame) -> None:
        """Does what the frame asks; an unknown kind is left alone, as a newer daemon may ask more.

        Frames also arrive in the middle of a retirement, which looks for them: all but three wait until it is over.
        """
        header = frame.header
        match frame.kind:
            case "in":
                if self._is_new(header.get("key")):
                    self._host.pipes.write(frame.body)
                self.taken = int(header.get("n", 0))
                self._host.answer("got", n=self.taken)
            case "ack":
                self._host.outbox.ack(int(header["n"]))
                self._host.pipes.watch()
                self._host.pump()
            case "retire_cancel":
                self._cancel()
            case _:
                self._host.timers.after(0, lambda: self._later(frame.kind, header))

    def _is_new(self, key: str | None) -> bool:
        """False for a line that was handed over before, by this daemon or one that has died since."""
        if key is None:
            return True
        if key in self._keys:
            return False
        self._keys[key] = None
        if len(self._keys) > KEYS:
            del self._keys[next(iter(self._keys))]
        return True

    def _later(self, kind: str, header: dict[str, Any]) -> None:
        match kind:
            case "retire":
                self._retire(header)
            case "end":
                self._end(header)
            case "core":
                if self._host.spec.configs_at == "session" and self._host.spec.session_id:
                    self._host.read_launch_again()
                self._core(header["id"], self._host.timers.after(CORE_S, lambda: None))
            case "take":
                self._host.take(header)
                self._host.answer("taken", id=header["id"], launch=self._host.launch_told())
            case "settle":
                Settle(self._host, header).look()
            case "census":
                self._census(header["id"])
            case "bye" if self._host.outcome is not None:
                self._host.leave()
            case _:
                pass

    def know(self, judged: Iterable[Judged]) -> None:
        """Remembers whom the last whole census counted, for the clean-up after a crash: others have left since."""
        self._known = frozenset(one.row.identity for one in judged if one.role in _OURS) or self._known

    # ------------------------------------------------------------ looking

    def _core(self, request: int, limit: Any) -> None:
        """MarkCore: what is there when `initialize` was answered."""
        try:
            listing = list_harness(self._host.harness, os.getpid(), kill_child, with_adopted=False)
        except table.CensusError as error:
            if error.retry and self._host.timers.left(limit) > 0:
                self._host.timers.after(CORE_POLL_S, lambda: self._core(request, limit))
                return
            self._host.answer("core_marked", id=request, core=[], launch=self._host.launch_told())
            return
        born = frozenset(row.identity for row in listing.rows)
        self._host.harness = self._host.harness._replace(born=born)
        core = [list(identity) for identity in sorted(born)]
        self._host.answer("core_marked", id=request, core=core, launch=self._host.launch_told())

    def _census(self, request: int) -> None:
        verdict = self._host.verdict()
        self.know(retire.known_of(verdict))
        unknown = verdict.reason if isinstance(verdict, Unknown) else None
        judged = verdict.judged or self._glimpse()
        shown = judged[:TOLD_ROWS]
        chars = max(TOLD_CHARS // max(1, len(shown)), TOLD_LEAST)
        ports = listening([one.row.pid for one in shown])
        rows = [
            table.told(one.row, one.role, one.server, ports.get(one.row.pid), min(chars, table.ARGV_CHARS))
            for one in shown
        ]
        self._host.answer(
            "census",
            id=request,
            whole=unknown is None,
            unknown=unknown,
            blockers=_told(getattr(verdict, "blockers", ())),
            processes=rows,
            more=len(judged) - len(shown),
        )

    def _glimpse(self) -> tuple[Judged, ...]:
        """What can be seen of a table that would not hold still: to be shown, never to be acted on."""
        rows, adopted = self._tree()
        verdict = judge(Listing(tuple(rows), tuple(adopted)), self._host.harness, self._host.launch.forms)
        return verdict.judged

    # ------------------------------------------------------------ retirement

    def _retire(self, header: dict[str, Any]) -> None:
        request = header["id"]
        if self._ending is not None or self._host.state != "running":
            self._refuse(request, retire.Refusal("busy", "the agent is being ended already"))
            return
        began_ms = table.now_ms()
        result = retire.attempt(self._host, int(header["after"]), self._host.spec.retire_signal == "kill")
        self.cancelled = False
        if isinstance(result, retire.Refusal):
            self._refuse(request, result)
            return
        self._host.state = "retiring"

        def done(ended: Outcome) -> None:
            self._host.reap()
            self._host.reap_leader()
            self._finish(
                "retired",
                "retired",
                id=request,
                ended=ended,
                left=self._left(),
                freed_bytes=result.freed_bytes,
                took_ms=table.now_ms() - began_ms,
            )

        self._ending = Ending(
            result.targets, int(header["grace_ms"]) / 1000, self._host.selector, self._host.timers, done
        )

    def _refuse(self, request: int, refusal: retire.Refusal) -> None:
        self._watch(refusal)
        self._host.answer(
            "refused",
            id=request,
            kind=refusal.kind,
            reason=refusal.reason,
            retry=refusal.retry,
            blockers=_told(refusal.blockers),
        )

    def _watch(self, refusal: retire.Refusal) -> None:
        """Watches those in the way without a poll, to say when the last of them has ended."""
        for fd in self._watched:
            self._host.selector.unregister(fd)
            os.close(fd)
        targets = open_targets_of(refusal.blockers)
        self._watched = {target.fd for target in targets}
        for target in targets:
            self._host.selector.register(target.fd, selectors.EVENT_READ, self._blocker_gone)

    def _blocker_gone(self, key: selectors.SelectorKey, _: Any) -> None:
        self._watched.discard(key.fd)
        self._host.selector.unregister(key.fd)
        os.close(key.fd)
        if not self._watched:
            self._host.answer("freed")

    def _cancel(self) -> None:
        if self._ending is not None:
            self._ending.cut()
        else:
            self.cancelled = True
            # a cancel that met no retirement must not refuse the next one
            self._host.timers.after(0, self._forget_cancel)

    def _forget_cancel(self) -> None:
        self.cancelled = False

    def _finish(self, state: str, kind: str, /, **header: Any) -> None:
        self._ending = None
        self._host.conclude(state, kind, **header)
        if self._then is not None:
            then, self._then = self._then, None
            then()

    # ------------------------------------------------------------ row 6

    def end_alone(self) -> None:
        """Our own service manager ends us: the harness goes as by a stop."""
        self._end({"id": 0, "all": False})

    def _end(self, header: dict[str, Any]) -> None:
        """Waits out an ending under way, its grace cut; else lists the tree, opens everybody, and only then signals."""
        if self._ending is not None:
            self._ending.cut()
            self._then = lambda: self._end(header)
            return
        if self._host.outcome is not None:
            self._host.answer("ended", id=header["id"], ended=[], left=self._left())
            return
        self._host.state = "ending"
        rows, adopted = self._tree()
        targets = open_targets([*rows, *(adopted if header.get("all") else ())])
        send_group(self._host.child.identity, signal.SIGTERM)
        if header.get("all"):
            for target in targets:
                send(target, signal.SIGTERM)
        self._host.timers.after(CUT_GRACE_S, lambda: send_group(self._host.child.identity, signal.SIGKILL))

        def done(ended: Outcome) -> None:
            self._host.reap()
            self._host.reap_leader()
            self._finish("ended", "ended", id=header["id"], ended=ended, left=self._left())

        self._ending = Ending(targets, CUT_GRACE_S, self._host.selector, self._host.timers, done)

    def _tree(self) -> tuple[list[Row], list[Row]]:
        """The tree and what left it, as whole as can be had: a stop needs no certainty, only identities."""
        try:
            listing = list_harness(self._host.harness, os.getpid(), kill_child, with_adopted=False)
            return list(listing.rows), list(listing.adopted)
        except table.CensusError:
            rows = table.best_effort(os.getpid())
        leader = self._host.child.identity.pid
        under = {leader} | {row.pid for row in below(rows, leader)}
        under |= {row.pid for row in rows if row.pgid == leader}
        return [row for row in rows if row.pid in under], [row for row in rows if row.pid not in under]

    def _left(self) -> Outcome:
        """What still runs below the host now that the harness is gone: newcomers, and work that left the tree."""
        gone = self._host.child.identity.pid
        rows = [row for row in table.best_effort(os.getpid()) if row.pid != gone and not row.zombie]
        return [(row.pid, row.start, command_text(row.argv), "left") for row in rows]

    # ------------------------------------------------------------ row 7

    def leader_gone(self) -> None:
        """The leader's exit is not the end: its group, its core and its servers are ended by identity.

        In an ending it is awaited.
        """
        if self._ending is None and self._host.state == "running":
            self._clean_up(self._remains())

    def broken(self, what: str) -> None:
        """A harness that lives and can't be spoken with is of no use: it is ended as a crashed one, and nobody else."""
        leader = table.row_of(self._host.child.identity.pid)
        if self._ending is None and self._host.state == "running" and leader is not None:
            self._clean_up([leader, *self._remains()], f"it closed {what} and lived on, so it was ended")

    def _clean_up(self, rows: list[Row], why: str = "") -> None:
        self._host.state = "ending"
        targets = open_targets(rows)
        for target in targets:
            send(target, signal.SIGTERM)

        def done(ended: Outcome) -> None:
            self._host.reap()
            code, number = self._host.reap_leader()
            tail = self._host.pipes.stderr_tail.decode("utf-8", "replace")
            tail = f"{tail.rstrip()}\n{why}" if why else tail
            self._host.pipes.finish()
            self._finish(
                "exited",
                "exited",
                code=code,
                signal=number,
                n=self._host.outbox.last,
                ended=ended,
                left=self._left(),
                stderr=tail,
            )

        self._ending = Ending(targets, CUT_GRACE_S, self._host.selector, self._host.timers, done)

    def _remains(self) -> list[Row]:
        """Group members and whom the last census counted, with all below them.

        A server's marker alone proves nothing here: what that server detached carries it too, also in a later life.
        """
        leader = self._host.child.identity
        rows = [row for row in table.best_effort(os.getpid()) if row.pid != leader.pid]
        roots = [row for row in rows if row.pgid == leader.pid or row.identity in self._known]
        found = {row.pid: row for root in roots for row in [root, *below(rows, root.pid)]}
        return list(found.values())


def _told(blockers: tuple[Blocker, ...]) -> list[list[object]]:
    return [list(blocker) for blocker in blockers[:TOLD_BLOCKERS]]
