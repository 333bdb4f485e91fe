import pytest

from acpmux.census.identity import Resolved, matches
from acpmux.model.process import Row, Server


def row(*argv: bytes) -> Row:
    return Row(2, 1, 1, 1, 1, "S", 1, argv)


def server(command: str, *args: str) -> Server:
    return Server("s", command, args, None, "config")


@pytest.mark.parametrize(
    ("told", "argv", "resolved"),
    [
        (server("node", "/p/i.js"), (b"node", b"/p/i.js"), None),
        (server("mcp-time"), (b"/v/bin/mcp-time",), Resolved("/v/bin/mcp-time")),
        (
            server("mcp-time", "-x"),
            (b"/v/bin/python3", b"/v/bin/mcp-time", b"-x"),
            Resolved("/v/bin/mcp-time", ("/v/bin/python3",)),
        ),
        (server("mcp-time"), (b"python3.12", b"/v/bin/mcp-time"), Resolved("/v/bin/mcp-time")),
        (server("npx", "-y", "@x/fs", "/tmp"), (b"npm exec @x/fs /tmp", b"", b"", b""), None),
        (server("npx", "-y", "--package=@x/fs", "fs", "/tmp"), (b"npm exec fs /tmp",), None),
        (server("npm", "exec", "-y", "--", "@x/fs"), (b"npm exec @x/fs", b""), None),
    ],
)
def test_every_form_a_server_can_show_is_known(
    told: Server, argv: tuple[bytes, ...], resolved: Resolved | None
) -> None:
    assert matches(row(*argv), told, resolved)


@pytest.mark.parametrize(
    ("told", "argv"),
    [
        (server("node"), (b"node",)),
        (server("python3"), (b"python3",)),
        (server("node", "/p/i.js"), (b"node", b"/p/i.js", b"--more")),
        (server("npx", "-y", "a b"), (b"npm exec a b",)),
        (server("npx", "-y", "x", ""), (b"npm exec x ",)),
        (server("npx", "--unknown", "x"), (b"npm exec x",)),
        (server("x"), ()),
        (server("", "x"), (b"", b"x")),
    ],
)
def test_what_only_looks_like_one_is_not(told: Server, argv: tuple[bytes, ...]) -> None:
    assert not matches(row(*argv), told)
