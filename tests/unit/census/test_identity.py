"""Each form here was seen of the real program: `tests/real/test_identity_forms.py` starts them."""

import pytest

from acpmux.census.identity import NOTHING, Resolved, Shown, matches, shown
from acpmux.model.process import Row

PLACES = {
    "node": Resolved("/usr/bin/node", (), "/usr/bin/node"),
    "npx": Resolved("/usr/bin/npx", ("node",), "/usr/lib/npm/npx-cli.js"),
    "uvx": Resolved("/home/u/bin/uvx", (), "/opt/uv/uvx"),
    "mcp-time": Resolved("/v/bin/mcp-time", ("/v/bin/python3",), "/v/bin/mcp-time"),
    "/p/wrap.sh": Resolved("/p/wrap.sh", ("/bin/sh",), "/p/wrap.sh"),
}


def row(*argv: bytes, exact: bool = True) -> Row:
    return Row(2, 1, 1, 1, 1, "S", 1, argv, exact=exact)


def forms(*words: str) -> Shown:
    return shown(words[0], words[1:], lambda command: PLACES.get(command, Resolved(None)))


KNOWN: list[tuple[tuple[str, ...], tuple[bytes, ...]]] = [
    (("node", "/p/i.js"), (b"node", b"/p/i.js")),
    (("node", "/p/i.js"), (b"/usr/bin/node", b"/p/i.js")),
    (("python3", "/p/s.py"), (b"/home/u/.pyenv/versions/3.11.7/bin/python3", b"/p/s.py")),
    (("node", "/p/a b.js", ""), (b"node", b"/p/a b.js", b"")),
    (("mcp-time", "-x"), (b"/v/bin/mcp-time", b"-x")),
    (("mcp-time", "-x"), (b"/v/bin/python3", b"/v/bin/mcp-time", b"-x")),
    (("mcp-time",), (b"python3.12", b"/v/bin/mcp-time")),
    (("/p/wrap.sh", "--a"), (b"/bin/sh", b"/p/wrap.sh", b"--a")),
    (("npx", "-y", "@x/fs"), (b"node", b"/usr/bin/npx", b"-y", b"@x/fs")),
    (("npx", "-y", "@x/fs", "/tmp"), (b"npm exec @x/fs /tmp", b"", b"", b"")),
    (("npx", "-y", "@x/fs", "/tmp", "--port", "3"), (b"npm exec @x/fs /tmp --port 3", b"")),
    (("npx", "-y", "--", "@x/fs", "-v"), (b"npm exec @x/fs -v", b"")),
    (("npx", "-y", "--package=@x/fs", "fs", "/tmp"), (b"npm exec fs /tmp",)),
    (("npx", "--yes", "--package", "@x/fs", "--", "fs"), (b"npm exec fs",)),
    (("npx", "-p", "@x/fs", "fs"), (b"npm exec fs",)),
    (("npx", "--prefer-offline", "@x/fs"), (b"npm exec @x/fs",)),
    (("npm", "exec", "-y", "--", "@x/fs", "--more"), (b"npm exec @x/fs --more", b"")),
    (("npm", "exec", "-y", "@x/fs", "--", "/tmp", "--x"), (b"npm exec @x/fs /tmp --x", b"")),
    (("npm", "x", "-y", "@x/fs", "/tmp"), (b"npm x @x/fs /tmp", b"")),
    (("uvx", "mcp-time"), (b"/home/u/bin/uv", b"tool", b"uvx", b"mcp-time")),
    (("uvx", "--from", "a b", "x"), (b"/opt/uv/uv", b"tool", b"uvx", b"--from", b"a b", b"x")),
    (("uv", "tool", "run", "x"), (b"uv", b"tool", b"run", b"x")),
    (("bunx", "x"), (b"bunx", b"x")),
    (("docker", "run", "-i", "--rm", "img"), (b"docker", b"run", b"-i", b"--rm", b"img")),
    (("env", "A=1", "node", "/p/i.js"), (b"node", b"/p/i.js")),
    (("env", "-u", "B", "A=1", "npx", "-y", "x"), (b"npm exec x", b"")),
    (("/usr/bin/env", "-S", "node /p/i.js"), (b"node", b"/p/i.js")),
    (("bash", "-c", "node /p/i.js"), (b"node", b"/p/i.js")),
    (("sh", "-c", "node /p/i.js"), (b"sh", b"-c", b"node /p/i.js")),
    (("sh", "-c", "exec node '/p/a b.js'"), (b"node", b"/p/a b.js")),
    (("bash", "-lc", "A=1 exec node /p"), (b"node", b"/p")),
    (("bash", "-c", "cd /tmp && exec npx -y x"), (b"npm exec x", b"")),
    (("bash", "-c", "a; b; c"), (b"bash", b"-c", b"a; b; c")),
]


@pytest.mark.parametrize(("configured", "argv"), KNOWN)
def test_every_form_a_server_can_show_is_known(configured: tuple[str, ...], argv: tuple[bytes, ...]) -> None:
    assert matches(row(*argv), forms(*configured))


@pytest.mark.parametrize(
    ("configured", "argv"),
    [
        (("node",), (b"node",)),
        (("python3",), (b"python3",)),
        (("env", "A=1", "node"), (b"node",)),
        (("bash", "-c", "exec python3"), (b"python3",)),
        (("node", "/p/i.js"), (b"node", b"/p/i.js", b"--more")),
        (("node", "/p/i.js"), (b"node", b"/p/i.js", b"")),
        (("node", "/p/i.js"), (b"/other/bun", b"/p/i.js")),
        (("node", "/p/i.js"), (b"/other/node", b"/p/i.js", b"")),
        (("/opt/server", "x"), (b"/other/server", b"x")),
        (("npx", "-y", "a b"), (b"npm exec a b",)),
        (("npx", "-y", "x", ""), (b"npm exec x ",)),
        (("npx", "--unknown", "x"), (b"npm exec x",)),
        (("npx", "-c", "x /tmp"), (b"npm exec",)),
        (("npx", "-y", "x"), (b"npm exec x", b"", b"y")),
        (("npm", "exec", "x", "--zz", "1"), (b"npm exec x 1",)),
        (("npm", "run", "x"), (b"npm run x",)),
        (("uvx", "x"), (b"/elsewhere/uv", b"tool", b"uvx", b"x")),
        (("bash", "-c", "node $HOME/i.js"), (b"node", b"$HOME/i.js")),
        (("bash", "-c", "node /p/*.js"), (b"node", b"/p/*.js")),
        (("bash", "-c", "node /p/i.js | tee x"), (b"node", b"/p/i.js")),
        (("bash", "-c", "node /p/i.js; true"), (b"node", b"/p/i.js")),
        (("bash", "-c", "'unclosed"), (b"unclosed",)),
        (("mcp-time",), (b"vim", b"/v/bin/mcp-time")),
        (("x",), ()),
        (("", "x"), (b"", b"x")),
    ],
)
def test_what_only_looks_like_one_is_not(configured: tuple[str, ...], argv: tuple[bytes, ...]) -> None:
    assert not matches(row(*argv), forms(*configured))


@pytest.mark.parametrize(("configured", "argv"), KNOWN)
def test_text_listing_knows_the_same_forms_but_for_words_it_cannot_tell_apart(
    configured: tuple[str, ...], argv: tuple[bytes, ...]
) -> None:
    tellable = all(word and b" " not in word for word in argv) or not any(argv[1:])
    assert matches(row(b" ".join(argv), exact=False), forms(*configured)) is tellable


def test_no_form_matches_nothing() -> None:
    assert not matches(row(b"x"), NOTHING)
