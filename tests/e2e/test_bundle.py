"""A session as one file: out of one home, into another, and what a hostile one meets."""

import gzip
import json
from pathlib import Path

import pytest

from kit.product import Product


@pytest.fixture
def talked(product: Product) -> Path:
    """A bundle of a session with three turns, of which the last failed."""
    product.agent()
    product.ok("new", "-a", "scripted", "-n", "s", "--cwd", str(product.folder))
    product.ok("send", "s", "hello")
    product.steps("s", {"do": "say", "text": "caf\u00e9 \ud83d\ude00"}, {"do": "raw", "line": RAW})
    product.fails("send", "s", json.dumps([{"do": "fail", "code": -32000, "message": "no"}]))
    bundle = product.folder / "s.acpmux"
    assert "s with" in product.ok("export", "s", "-o", str(bundle))
    return bundle


RAW = '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"x","update":{"sessionUpdate":"odd",  "n": 1.50e3, "big": 123456789012345678901234567890}}}'  # fmt: skip


def test_records_travel_byte_for_byte_there_and_back(product: Product, talked: Path) -> None:
    lines = talked.read_text().splitlines()
    assert any('"n": 1.50e3, "big": 123456789012345678901234567890' in line for line in lines)
    product.ok("stop", "s")
    told = product.json("import", str(talked), "-n", "t")
    assert told["name"] == "t" and product.status("t") == "hibernated"
    again = product.run("export", "t").stdout.splitlines()
    assert again[1:] == lines[1:]
    assert {**json.loads(again[0]), "name": "s"} == json.loads(lines[0])
    assert product.ok("last", "t", "-n", "2").startswith(product.ok("last", "s", "-n", "2"))


def test_imported_session_wakes_with_this_homes_command_and_goes_on(product: Product, talked: Path) -> None:
    product.ok("rm", "s")
    assert "s is there and sleeps" in product.ok("import", str(talked))
    assert product.ok("send", "s", "again") == "echo: again\n"
    assert "it woke by resume" in product.ok("why", "s")


def test_bundle_brings_no_program_and_no_environment(product: Product) -> None:
    product.agent()
    servers = product.folder / "mcp.json"
    server = {"command": "sleep", "args": ["777"], "env": {"KEY": "a-secret"}}
    servers.write_text(json.dumps({"mcpServers": {"clock": server}}))
    product.ok("new", "-a", "scripted", "-n", "s", "--mcp-config", str(servers))
    bundle = product.ok("export", "s")
    assert "a-secret" not in bundle and "777" not in bundle and "scripted_agent.py" not in bundle
    done = product.run("import", "-", "-n", "t", stdin=bundle)
    assert done.returncode == 0 and "its MCP servers did not come with it: clock" in done.stderr


def test_packed_bundle_and_one_through_a_pipe(product: Product, talked: Path) -> None:
    packed = product.folder / "s.acpmux.gz"
    product.ok("export", "s", "-o", str(packed))
    assert gzip.decompress(packed.read_bytes()) == talked.read_bytes()
    assert product.json("import", str(packed))["name"] == "s-1"
    assert product.run("import", "-", stdin=talked.read_text()).returncode == 0


def test_turn_that_was_exported_in_the_middle_ends_as_unknown(product: Product) -> None:
    product.agent()
    product.ok("new", "-a", "scripted", "-n", "s")
    product.ok("send", "s", json.dumps([{"do": "hang"}]), "--no-wait", "--prompt-id", "p1")
    product.until("s", "running")
    bundle = product.ok("export", "s")
    assert product.run("import", "-", "-n", "t", stdin=bundle).returncode == 0
    told = product.run("send", "t", "x", "--prompt-id", "p1", "--json")
    assert json.loads(told.stderr)["error"]["code"] == "outcome_unknown"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda lines: lines[:-1], "it was cut"),
        (lambda lines: [lines[0], *lines[2:]], "record 1 (line 2): its seq is 2"),
        (lambda lines: lines[1:], "line 1 is not the head"),
        (lambda lines: [lines[0].replace('"version":1', '"version":9'), *lines[1:]], "version 9"),
        (lambda lines: [lines[0], "x", *lines[2:]], "record 1 (line 2)"),
        (lambda lines: [lines[0], lines[1].replace('"created"', '"odd"'), *lines[2:]], "'odd' is not a valid Kind"),
        (lambda lines: [lines[0].replace('"agent":"scripted"', '"agent":"nobody"'), *lines[1:]], "no agent is called"),
        (lambda lines: [lines[0].replace('"policy":"ask"', '"policy":"odd"'), *lines[1:]], "line 1"),
        (lambda lines: [], "line 1"),
    ],
)
def test_bundle_that_does_not_hold_is_refused_with_its_line_and_leaves_nothing(
    product: Product, talked: Path, change: object, said: str
) -> None:
    assert callable(change)
    lines = talked.read_text().splitlines()
    done = product.run("import", "-", "-n", "t", stdin="\n".join(change(lines)))
    assert done.returncode != 0 and said in done.stderr, done
    assert [row["name"] for row in product.json("ls")] == ["s"]
    product.ok("daemon", "shutdown")
    assert [row["name"] for row in product.json("ls")] == ["s"]
