"""Whatever reaches the census from outside: a typed error or a value, never another exception."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from acpmux.census import ps
from acpmux.census.identity import Resolved, matches, shown
from acpmux.census.readers import READERS, read
from acpmux.census.table import CensusError, Stat
from acpmux.model.process import Launching, Row

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
SERVER = st.dictionaries(
    st.sampled_from(["command", "args", "env", "type", "enabled", "url", "cwd", "environment"]),
    st.sampled_from(["npx", "${A:-${B}}", "{env:A}", "$", "stdio", "local", ""]) | st.lists(st.text(max_size=8), max_size=3) | JSON,
)  # fmt: skip
TABLES = st.dictionaries(
    st.sampled_from(["mcpServers", "mcp", "projects", "mcp_servers"]), st.dictionaries(st.text(max_size=6), SERVER | JSON, max_size=3) | JSON
)  # fmt: skip
PLACES = (".claude.json", ".mcp.json", ".codex/config.toml", ".gemini/settings.json", "opencode.json")


@given(st.binary(max_size=300))
@example(b"1 (a b) S 1 1 1")
@example(b"1 (x) R 1) S " + b"0 " * 50)
def test_stat_of_any_bytes_is_a_stat_or_a_value_error(data: bytes) -> None:
    try:
        Stat(1, data)
    except (ValueError, IndexError):
        pass


@given(st.binary(max_size=300) | st.text(max_size=200).map(lambda t: (t + "\n").encode()))
@example(b"1 0 1 S\n")
@example(b"1 0 1 Zl x y\n  2 1 1 R+ a  b \n")
def test_ps_of_any_bytes_is_rows_or_a_census_error(data: bytes) -> None:
    try:
        assert all(isinstance(row, Row) for row in ps.parse(data, 0))
    except CensusError:
        pass


@given(TABLES | JSON, st.sampled_from(sorted(READERS)), st.sampled_from(PLACES))
def test_any_configuration_gives_servers_of_texts_and_named_problems(told: Any, config: str, place: str) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder, place)
        path.parent.mkdir(exist_ok=True)
        try:
            path.write_text(json.dumps(told))
        except UnicodeEncodeError:
            return
        found = read(Launching(("a",), folder, {"HOME": folder, "A": "1"}, (config,)))
        for one in found.named:
            assert one.server.command and all(isinstance(arg, str) for arg in one.server.args)
            assert one.server.marker is None


@given(st.binary(max_size=200), st.sampled_from(sorted(READERS)), st.sampled_from(PLACES))
def test_any_bytes_as_a_configuration_harm_nothing(data: bytes, config: str, place: str) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder, place)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        read(Launching(("a",), folder, {"HOME": folder}, (config,)))


WORD = st.text(alphabet="ab -='\"$;&|/\\\u00e9\udcff", max_size=12)


@given(
    st.sampled_from(["npx", "npm", "env", "bash", "sh", "uvx", "node", "x"]) | WORD,
    st.lists(st.sampled_from(["-c", "exec", "-y", "--", "x"]) | WORD, max_size=4),
)
def test_a_servers_own_line_is_always_a_form_unless_it_is_a_bare_interpreter(command: str, args: list[str]) -> None:
    forms = shown(command, args, lambda name: Resolved("/bin/" + name, ("node",), None))
    argv = tuple(word.encode("utf-8", "surrogateescape") for word in (command, *args))
    bare = not command or (command in ("node", "bash", "sh") and not args)
    assert matches(Row(1, 0, 1, 1, 1, "S", 1, argv), forms) is not bare


@given(st.lists(WORD, max_size=4), st.lists(WORD, min_size=1, max_size=4))
def test_other_arguments_are_another_program(args: list[str], argv: list[str]) -> None:
    """But for what `env` and shells become, a plain command matches itself alone."""
    forms = shown("/opt/server", args, lambda name: Resolved(None))
    row = Row(1, 0, 1, 1, 1, "S", 1, tuple(word.encode("utf-8", "surrogateescape") for word in argv))
    assert matches(row, forms) is (argv == ["/opt/server", *args])
