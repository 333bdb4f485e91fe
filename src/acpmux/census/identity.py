"""The exact command lines a configured server can show (SPEC section 4; pure).

For a server that acpmux configured the marker in its environment is the evidence; its command line counts only where
the profile says that the agent drops the environment. A server of the agent's own configuration is known by its
command line alone, so a form is listed here only where the real program was seen to show it.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from acpmux.model.process import Row

INTERPRETERS = frozenset({"node", "bun", "deno", "python", "python3", "ruby", "perl", "sh", "bash", "zsh", "dash"})
_SHELLS = frozenset({"sh", "bash", "zsh", "dash"})
_DEPTH = 4  # env in front of sh in front of npx; deeper ones are nobody's
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./-_ '\"")
# npm's own flags in front of a package, which its title leaves out
_NPM_FLAGS = frozenset({
    "-y", "--yes", "-q", "--quiet", "-s", "--silent", "--no", "--no-install",
    "--offline", "--prefer-offline", "--prefer-online",
})  # fmt: skip
_NPM_VALUED = frozenset(["-p", "--package", "--registry", "--cache", "--prefix", "--userconfig", "--loglevel"])


class Resolved(NamedTuple):
    """What was looked up once at the launch: where a command is, behind links too, and what its first line names."""

    path: str | None
    shebang: tuple[str, ...] = ()
    real: str | None = None


class Shown(NamedTuple):
    """Every form one server can show.

    `lines` are whole command lines; `scripts` what stands behind any listed interpreter; `programs` begin with the base
    name of an interpreter that may lie anywhere, since version managers put a stand-in in front of it; and `titles`.
    """

    lines: tuple[tuple[str, ...], ...]
    scripts: tuple[tuple[str, ...], ...]
    programs: tuple[tuple[str, ...], ...]
    titles: tuple[str, ...]


Look = Callable[[str], Resolved]
NOTHING = Shown((), (), (), ())


def shown(command: str, args: Sequence[str], look: Look) -> Shown:
    """The forms of a server that is configured as this command with these arguments."""
    lines: dict[tuple[str, ...], None] = {}
    scripts: dict[tuple[str, ...], None] = {}
    programs: dict[tuple[str, ...], None] = {}
    titles: dict[str, None] = {}
    for name, rest in _readings(command, tuple(args)):
        if not name or (_is_interpreter(name) and not rest):
            continue  # a bare interpreter is everybody's
        found = look(name)
        lines[(name, *rest)] = None
        if found.path is not None:
            lines[(found.path, *rest)] = None
            scripts[(found.path, *rest)] = None
            if found.shebang:
                lines[(*found.shebang, found.path, *rest)] = None
        base = _base(name)
        if _is_interpreter(name):
            programs[(base, *rest)] = None
        for title in _npm_titles(base, rest):
            titles[title] = None
        if base == "uvx":  # it becomes the uv that lies beside it
            for path in (found.path, found.real):
                if path is not None:
                    lines[(path.removesuffix("uvx") + "uv", "tool", "uvx", *rest)] = None
    return Shown(tuple(lines), tuple(scripts), tuple(programs), tuple(titles))


def matches(row: Row, forms: Shown) -> bool:
    """True when the row shows exactly one of these forms."""
    if not row.argv:
        return False
    if not row.exact:
        return _text_matches(row.argv[0].decode("utf-8", "replace"), forms)
    argv = tuple(word.decode("utf-8", "surrogateescape") for word in row.argv)
    if argv in forms.lines or (_base(argv[0]), *argv[1:]) in forms.programs:
        return True
    if argv[1:] in forms.scripts and _is_interpreter(argv[0]):
        return True
    # programs that set a title leave the rest of their argument area as empty strings
    return argv[0] in forms.titles and not any(argv[1:])


def _text_matches(text: str, forms: Shown) -> bool:
    """For a listing that joins words by blanks: only forms without an empty or blank-holding word can be told apart."""
    if any(text == " ".join(line) for line in forms.lines if _tellable(line)):
        return True
    program, _, rest = text.partition(" ")
    if any(f"{_base(program)} {rest}" == " ".join(line) for line in forms.programs if _tellable(line)):
        return True
    if _is_interpreter(program) and any(rest == " ".join(script) for script in forms.scripts if _tellable(script)):
        return True
    return text.rstrip(" ") in forms.titles


def _tellable(words: Sequence[str]) -> bool:
    return all(word and not any(c.isspace() for c in word) for word in words)


def is_interpreter(program: bytes) -> bool:
    """By base name; python3.N is one too."""
    return _is_interpreter(program.decode("utf-8", "replace"))


def _is_interpreter(program: str) -> bool:
    name = _base(program)
    return name in INTERPRETERS or (name.startswith("python3.") and name[8:].isdigit())


def _base(path: str) -> str:
    return path.rsplit("/", 1)[-1]


# ------------------------------------------------------------ programs that become others


def _readings(command: str, args: tuple[str, ...]) -> list[tuple[str, tuple[str, ...]]]:
    """The command itself, and what `env` or a shell becomes of it."""
    found = [(command, args)]
    while len(found) < _DEPTH:
        words = _becomes(*found[-1])
        if not words:
            break
        found.append((words[0], tuple(words[1:])))
    return found


def _becomes(command: str, args: tuple[str, ...]) -> list[str]:
    """The words a program replaces itself with (execve(2)), empty where it stays or that can't be told."""
    base = _base(command)
    if base == "env":
        return _behind_env(list(args))
    if base in _SHELLS and len(args) == 2 and args[0] in ("-c", "-lc", "-ec"):
        return _simple_command(args[1])
    return []


def _behind_env(words: list[str]) -> list[str]:
    while words:
        if words[0] in ("-i", "-", "--ignore-environment"):
            words = words[1:]
        elif words[0] in ("-u", "--unset") and len(words) > 1:
            words = words[2:]
        elif words[0] in ("-S", "--split-string") and len(words) > 1:
            return [*_split(words[1]), *words[2:]]
        elif words[0].startswith("-"):
            return words[1:] if words[0] == "--" else []
        elif "=" in words[0]:
            words = words[1:]
        else:
            return words
    return []


def _simple_command(text: str) -> list[str]:
    """`[cd DIR &&] [NAME=VALUE ...] [exec] COMMAND ARGS`, its last command: a shell becomes it.

    dash stays in front of a command without `exec`, and then shows its own line, which is a form too.
    """
    first, mark, rest = text.partition("&&")
    if mark and _split(first)[:1] == ["cd"] and len(_split(first)) == 2:
        text = rest
    words = _split(text)
    while words and "=" in words[0] and words[0].split("=", 1)[0].isidentifier():
        words = words[1:]
    if words[:1] == ["exec"]:
        words = words[1:]
    return [] if words[:1] in ([], ["cd"]) or words[0].startswith("-") else words


def _split(text: str) -> list[str]:
    """The words of a text without anything a shell would expand; empty for any other."""
    if not set(text) <= _PLAIN:
        return []
    import shlex  # in the reading child alone

    try:
        return shlex.split(text)
    except ValueError:
        return []


# ------------------------------------------------------------ titles


def _npm_titles(base: str, args: tuple[str, ...]) -> list[str]:
    """The one text npm sets as its title; none with an empty or blank-holding argument."""
    if base == "npx":
        words = _behind_flags(list(args))
        rest = ["npm", "exec", *words] if words else []
    elif base == "npm" and args[:1] in (("exec",), ("x",)):
        before, behind = _at_dashes(list(args[1:]))
        words = _behind_flags(before)
        if before and words is None:
            return []
        words = [*(words or ()), *behind]
        known = not any(word.startswith("-") for word in words[: len(words) - len(behind)])
        rest = ["npm", args[0], *words] if words and known else []
    else:
        rest = []
    return [" ".join(rest)] if rest and _tellable(args) else []


def _at_dashes(words: list[str]) -> tuple[list[str], list[str]]:
    at = words.index("--") if "--" in words else len(words)
    return words[:at], words[at + 1 :]


def _behind_flags(words: list[str]) -> list[str] | None:
    """What is left behind npm's own flags; None where one of them is not known."""
    while words and words[0].startswith("-"):
        if words[0] == "--":
            return words[1:]
        if words[0] in _NPM_FLAGS or (words[0].startswith("--") and "=" in words[0]):
            words = words[1:]
        elif words[0] in _NPM_VALUED and len(words) > 1:
            words = words[2:]
        else:
            return None
    return words
