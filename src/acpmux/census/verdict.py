"""The judgement: what each process under a harness is, and whether the harness may end (SPEC section 4; pure).

Everybody must be the harness itself, a configured server, or something under one. Whoever is not is somebody else,
and holds it.
"""

from acpmux.census.identity import NOTHING, Shown, matches
from acpmux.census.tree import by_parent
from acpmux.model.process import (
    Blocker,
    Clear,
    CoreRule,
    Harness,
    Held,
    Identity,
    Judged,
    Listing,
    Role,
    Row,
    Server,
    Unknown,
    Verdict,
)

COMMAND_BYTES = 120
NO_COMMAND = "(a process that shows no command)"
_SECRET_WORDS = ("token", "key", "secret", "password", "passwd", "auth", "credential")


def judge(listing: Listing, harness: Harness, forms: dict[str, Shown] | None = None) -> Verdict:
    """Clear, Held or Unknown. Only Clear ends anything; the answer does not depend on the order of rows."""
    rows = {row.pid: row for row in listing.rows}
    leader = rows.get(harness.leader.pid)
    if leader is None or leader.start != harness.leader.start or leader.zombie:
        return Unknown("the agent's first process is not among the living")
    judged = _Judgement(listing, harness, forms or {}).all()
    if harness.launch is not None and harness.launch.timed_out:
        reason = harness.launch.problems[0] if harness.launch.problems else "its configuration was not read in time"
        return Unknown(reason, judged=judged)
    blockers = tuple(_blocker(one, listing) for one in judged if one.role is Role.OTHER)
    if blockers:
        return Held(judged, blockers)
    return Clear(judged)


class _Judgement:
    """One pass from the leader downward: core first, since servers are children of core."""

    def __init__(self, listing: Listing, harness: Harness, forms: dict[str, Shown]) -> None:
        self._listing = listing
        self._harness = harness
        self._forms = forms
        self._children = by_parent(listing.rows)
        self._rows = {row.pid: row for row in listing.rows}
        self._core = self._core_by_anatomy()
        self._server_of: dict[int, str] = {}
        self._find_servers()
        if self._add_core_by_birth():
            self._find_servers()

    def all(self) -> tuple[Judged, ...]:
        found = [self._judged(row) for row in sorted(self._listing.rows)]
        for row in sorted(self._listing.adopted):
            role = Role.OTHER if row.pid in self._listing.tied else Role.LEFT_RUNNING
            found.append(Judged(row, role, None))
        return tuple(found)

    def _judged(self, row: Row) -> Judged:
        if row.pid in self._core:
            return Judged(row, Role.HARNESS, None)
        if row.pid in self._server_of:
            return Judged(row, Role.SERVER, self._server_of[row.pid])
        above = row.ppid
        seen: set[int] = set()
        while above in self._rows and above not in seen and above not in self._core:
            if above in self._server_of and self._is_child_chain(row, above):
                return Judged(row, Role.UNDER_SERVER, self._server_of[above])
            seen.add(above)
            above = self._rows[above].ppid
        return Judged(row, Role.OTHER, None)

    def _is_child_chain(self, row: Row, server_pid: int) -> bool:
        """The chain from the row up to the server holds only true parents: none younger than its child."""
        while row.pid != server_pid:
            parent = self._rows[row.ppid]
            if parent.start > row.start:
                return False
            row = parent
        return True

    # ------------------------------------------------------------ core

    def _core_by_anatomy(self) -> set[int]:
        core = {self._harness.leader.pid, *self._launcher_chain()}
        pending = list(core)
        while pending:
            for child in self._children.get(pending.pop(), ()):
                if child.pid in core or child.tool or child.marker is not None:
                    continue
                if self._same_session(child) and any(is_core(child, rule) for rule in self._harness.anatomy):
                    core.add(child.pid)
                    pending.append(child.pid)
        return core

    def _launcher_chain(self) -> list[int]:
        """Behind a leader that is a known launcher (npx, uvx): its one child at birth, and through a shell that one's.

        Only what was there when `initialize` was answered: a later child of a launcher is somebody's command.
        """
        chain: list[int] = []
        current = self._rows[self._harness.leader.pid]
        while is_launcher(words_of(current)) or (
            chain and _base(current.argv[0]) == b"sh" and current.argv[1:2] == (b"-c",)
        ):
            born = [
                child
                for child in self._children.get(current.pid, ())
                if child.identity in (self._harness.born or ()) and not child.tool and child.marker is None
            ]
            if len(born) != 1 or born[0].pid in chain or not born[0].argv:
                break
            current = born[0]
            chain.append(current.pid)
        return chain

    def _add_core_by_birth(self) -> bool:
        """What was there when `initialize` was answered *and* is an ancestor of a recognised server is core too."""
        born = self._harness.born or frozenset[Identity]()
        added: set[int] = set()
        for row in self._listing.rows:
            if self._server(row) is None:
                continue
            chain = self._chain_to_core(row)
            if chain and all(r.identity in born and not r.tool and r.marker is None for r in chain):
                added |= {r.pid for r in chain}
        self._core |= added
        return bool(added)

    def _chain_to_core(self, row: Row) -> list[Row]:
        """The rows between a process and the core above it, empty when there is none above or none between."""
        chain: list[Row] = []
        above = self._rows.get(row.ppid)
        while above is not None and above.pid not in self._core and above not in chain:
            chain.append(above)
            above = self._rows.get(above.ppid)
        return chain if above is not None and above.pid in self._core else []

    # ------------------------------------------------------------ servers

    def _find_servers(self) -> None:
        for pid in sorted(self._core):
            for child in self._children.get(pid, ()):
                server = None if child.pid in self._core else self._server(child)
                if server is not None:
                    self._server_of[child.pid] = server.name

    def _server(self, row: Row) -> Server | None:
        """The configured server this row is, by its marker, or by its exact command line where no marker is
        required.
        """
        launch = self._harness.launch
        if launch is None or row.tool:
            return None
        for server in launch.servers:
            if server.marker is not None and row.marker == server.marker and not self._marker_leaked(server.marker):
                return server
            by_line = server.marker is None or not self._harness.marker_required
            if by_line and self._same_session(row) and matches(row, self._forms.get(server.name, NOTHING)):
                return server
        return None

    def _same_session(self, row: Row) -> bool:
        """Agents run each command of their shell tool in an OS session of its own (setsid(2)), and no part of theirs.

        So a command with a server's exact command line, or with the agent's own, is not taken for one.
        """
        return row.sid == self._rows[self._harness.leader.pid].sid

    def _marker_leaked(self, marker: str) -> bool:
        """A harness that carries a server's marker itself hands it to everything it starts: then it proves nothing."""
        return any(self._rows[pid].marker == marker for pid in self._core if pid in self._rows)


def is_launcher(argv: tuple[bytes, ...]) -> bool:
    """npx and npm exec by their title or as a script under node; uvx and uv by the program they become."""
    if not argv:
        return False
    if argv[0].startswith((b"npm exec ", b"npx ")):
        return True
    words = [_base(word) for word in argv[:3]]
    return words[0] in (b"npx", b"uvx", b"bunx") or words[:2] in (
        [b"node", b"npx"],
        [b"uv", b"tool"],
        [b"uv", b"run"],
    )


def is_core(row: Row, rule: CoreRule) -> bool:
    """True when the row shows this step of an anatomy."""
    argv = words_of(row)
    if not argv or _base(argv[0]) != rule.program.encode():
        return False
    if rule.script is not None:
        script = argv[1] if len(argv) > 1 else b""
        wanted = rule.script.encode()
        if script != wanted and not script.endswith(b"/" + wanted.removeprefix(b"/")):
            return False
    return rule.argument is None or rule.argument.encode() in argv[1:]


def words_of(row: Row) -> tuple[bytes, ...]:
    """Its command line; that of a text listing cut at the blanks."""
    return row.argv if row.exact else tuple(row.argv[0].split()) if row.argv else ()


def _base(path: bytes) -> bytes:
    return path.rsplit(b"/", 1)[-1]


# ------------------------------------------------------------ who is in the way, in words


def _blocker(one: Judged, listing: Listing) -> Blocker:
    row = one.row
    if row.pid in listing.tied:
        why = "it left the agent's tree but still holds a pipe, socket or terminal to it"
    elif row.tool:
        why = "the agent started it as a command"
    else:
        why = "it is neither the agent nor one of its MCP servers"
    return Blocker(row.pid, row.start, command_text(row.argv), why)


def command_text(argv: tuple[bytes, ...]) -> str:
    """A command fit for a log: one line, 120 bytes, without what looks like a secret."""
    words = [word.decode("utf-8", "replace") for word in argv[:40] if word]
    shown: list[str] = []
    hide_next = False
    for word in words:
        shown.append("***" if hide_next else _redacted(word))
        lowered = word.lower()
        hide_next = word.startswith("-") and "=" not in word and any(secret in lowered for secret in _SECRET_WORDS)
    text = "".join(c if c.isprintable() else " " for c in " ".join(shown))
    return text.encode("utf-8", "replace")[:COMMAND_BYTES].decode("utf-8", "ignore").strip() or NO_COMMAND


def _redacted(word: str) -> str:
    name, mark, value = word.partition("=")
    if mark and value and any(secret in name.lower() for secret in _SECRET_WORDS):
        return f"{name}=***"
    scheme, mark, rest = word.partition("://")
    if mark and "@" in rest.split("/", 1)[0]:
        return f"{scheme}://***@{rest.split('@', 1)[1]}"
    long_run = len(word) >= 32 and "/" not in word and "." not in word and not word.startswith("-")
    if long_run and any(c.isdigit() for c in word) and any(c.isalpha() for c in word) and " " not in word:
        return "***"
    return word
