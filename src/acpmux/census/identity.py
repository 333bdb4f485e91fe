"""The exact command lines a configured server can show (SPEC section 4; pure).

For a server that acpmux configured the marker in its environment is the evidence; its command line counts only
where the profile says
that the agent drops the environment.
"""

from typing import NamedTuple

from acpmux.model.process import Row, Server

INTERPRETERS = frozenset({"node", "bun", "deno", "python", "python3", "ruby", "perl", "sh", "bash", "zsh", "dash"})


class Resolved(NamedTuple):
    """What was looked up once at the launch: where the command is, and the interpreter its first line names."""

    path: str | None
    shebang: tuple[str, ...] = ()


def is_interpreter(program: bytes) -> bool:
    """By base name; python3.N is one too."""
    name = program.rsplit(b"/", 1)[-1].decode("utf-8", "replace")
    return name in INTERPRETERS or (name.startswith("python3.") and name[8:].isdigit())


def matches(row: Row, server: Server, resolved: Resolved | None = None) -> bool:
    """True when the row shows exactly a command line of this server, in one of the forms it can take."""
    argv = row.argv
    if not argv or not server.command or (is_interpreter(server.command.encode()) and not server.args):
        return False
    args = tuple(arg.encode("utf-8", "surrogateescape") for arg in server.args)
    if any(argv == form + args for form in _forms(server, resolved)):
        return True
    script = resolved.path if resolved else None
    if script is not None and argv[1:] == (script.encode(), *args) and is_interpreter(argv[0]):
        return True
    return _title(argv) in titles(server)


def _forms(server: Server, resolved: Resolved | None) -> list[tuple[bytes, ...]]:
    forms: list[tuple[bytes, ...]] = [(server.command.encode("utf-8", "surrogateescape"),)]
    if resolved is not None and resolved.path is not None:
        path = resolved.path.encode("utf-8", "surrogateescape")
        forms.append((path,))
        if resolved.shebang:
            forms.append((*(part.encode() for part in resolved.shebang), path))
    return forms


def _title(argv: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Programs that set a title leave the rest of their argument area as empty strings."""
    end = len(argv)
    while end > 1 and argv[end - 1] == b"":
        end -= 1
    return argv[:end]


def titles(server: Server) -> list[tuple[bytes, ...]]:
    """What the listed launchers set as their title from these arguments.

    None with an empty or blank-holding argument.
    """
    args = list(server.args)
    if any(not arg or any(c.isspace() for c in arg) for arg in args):
        return []
    name = server.command.rsplit("/", 1)[-1]
    rest = _npx(args) if name == "npx" else _npm_exec(args) if name == "npm" else None
    if rest:
        return [(" ".join(["npm", "exec", *rest]).encode(),)]
    return []


def _npx(args: list[str]) -> list[str] | None:
    """npx drops its own flags; any other flag in front of the package makes the title unknown."""
    while args and args[0].startswith("-"):
        if args[0] in ("-y", "--yes", "-q", "--quiet") or args[0].startswith("--package="):
            args = args[1:]
        elif args[0] == "--":
            return args[1:]
        else:
            return None
    return args


def _npm_exec(args: list[str]) -> list[str] | None:
    return _npx(args[1:]) if args[:1] in (["exec"], ["x"]) else None
