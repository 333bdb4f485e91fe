from pathlib import Path

import pytest

from acpmux.errors import ConfigFault
from acpmux.model.config import Config
from acpmux.model.session import McpServer
from acpmux.runtime.configfile import MAX_BYTES, in_force, load, parse, parse_mcp_json

FULL = b"""
default_agent = "claude"
[idle]
after = "90s"
attached = "always"
grace = "1s"
park = false
[start]
initialize = "5s"
[agents.codex]
command = ["codex-acp", "-x"]
env = { CODEX_HOME = "/x" }
idle_after = "never"
hosting = "hosted"
pool = 0
core = ["helper"]
[agents.codex.mcp_servers.a]
command = "a"
[mcp_servers.time]
command = "uvx"
args = ["mcp-server-time"]
[web]
listen = "127.0.0.1:47811"
"""


def test_every_key_of_the_contract_is_read() -> None:
    config = parse(FULL, "config.toml")
    assert (config.default_agent, config.idle.after_s, config.idle.attached_s) == ("claude", 90, None)
    assert (config.idle.grace_s, config.idle.park, config.start.initialize_s) == (1, False, 5)
    (codex,) = config.agents
    assert codex.command == ("codex-acp", "-x") and codex.pinned and codex.core == ("helper",)
    assert codex.mcp_servers == (McpServer("a", "a"),)
    assert config.mcp_servers == (McpServer("time", "uvx", ("mcp-server-time",)),)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"[idel]\n", "'idel'; did you mean 'idle'"),
        (b"[idle]\nafter = 5\n", "idle.after: '5' is no duration"),
        (b"[idle]\ngrace = 'never'\n", "idle.grace must be a duration"),
        (b"idle = 5\n", "idle must be a table"),
        (b"[agents.x]\ncommand = 'codex'\n", "agents.x.command must be a list of texts"),
        (b"[agents.x]\nhosting = 'pooled'\n", "hosted"),
        (b"[agents.x]\npool = 9\n", "agents.x.pool must be a number of hosts from 0 to 8"),
        (b"[agents.x]\npool = -1\n", "from 0 to 8"),
        (b'[agents.x]\npool = 1\ncommand = ["claude", "--mcp-config=x"]\n', "names MCP servers by --mcp-config"),
        *(
            (
                b"[agents.x]\ncore = ['helper', '%s']\n" % name,
                "agents.x.core must be base names of programs of the agent's own, and no interpreter",
            )
            for name in (b"", b"node", b"bash", b"python3.12", b"npx", b"uvx", b"npm", b"env", b"/opt/helper")
        ),
        (b"[mcp_servers.t]\nargs = []\n", "mcp_servers.t.command must be the server's program"),
        (b"[mcp_servers.t]\nurl = 'http://x'\n", "not there yet"),
        (b"web = 5\n", "web must be a table"),
        (b"[web]\nlisen = 'x'\n", "'web.lisen'; did you mean 'listen'"),
        (b"[web]\nalways = 'yes'\n", "web.always must be true or false"),
        (b'[agents.x]\ncommand = ["a\\u0000b"]\n', "agents.x.command must be text without NUL"),
        (b"[agents.x]\nenv = { 'A=B' = 'x' }\n", "agents.x.env must be a table of variables"),
        (b"[agents.x]\nenv = { '' = 'x' }\n", "agents.x.env must be a table of variables"),
        (b"[mcp_servers.'']\ncommand = 'x'\n", "mcp_servers.'' must be named"),
        (b"x = ", "not valid TOML"),
        (b"x = " + b"9" * 5000, "not valid TOML"),
        (b"\xff\xfe", "not UTF-8"),
        (b"#" * 2_000_000, "is over"),
    ],
)
def test_each_fault_names_the_file_the_key_and_what_is_expected(text: bytes, told: str) -> None:
    with pytest.raises(ConfigFault) as raised:
        parse(text, "/home/me/config.toml")
    assert told in raised.value.message and "/home/me/config.toml" in raised.value.message


def test_without_a_file_the_defaults_hold(tmp_path: Path) -> None:
    assert load(tmp_path / "config.toml") == Config()


def test_file_is_read_no_further_than_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # a hole of a terabyte
    with pytest.raises(ConfigFault, match=rf"config\.toml is over {MAX_BYTES} bytes"):
        load(path)


def test_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigFault, match=r"config can't be read: Is a directory"):
        (tmp_path / "config").mkdir()
        load(tmp_path / "config")


def test_mcp_json_in_the_usual_form() -> None:
    text = '{"mcpServers": {"t": {"type": "stdio", "command": "uvx", "args": ["x"], "env": {"K": "v"}}}}'
    assert parse_mcp_json(text, ".mcp.json") == (McpServer("t", "uvx", ("x",), (("K", "v"),)),)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"mcpServers": []}',
        '{"mcpServers": {"t": {"type": "http", "url": "u"}}}',
        "[" * 99_999,
        '{"mcpServers": {"t": {"command": "\\ud800"}}}',
        '{"mcpServers": {"\\ud800": {"command": "x"}}}',
        '{"mcpServers": {"t": {"command": "x", "args": ["\\u0000"]}}}',
        '{"mcpServers": {"t": {"command": "x", "env": {"\\ud800": ""}}}}',
    ],
)
def test_mcp_json_of_another_form_is_named(text: str) -> None:
    with pytest.raises(ConfigFault, match=r"\.mcp\.json"):
        parse_mcp_json(text, ".mcp.json")


def test_every_value_in_force_is_told_with_its_source_and_no_secret(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    nothing = in_force(path)
    assert {source for _, _, source in nothing} == {"default"}
    text = "".join(
        f"{key} = {'true' if value is True else ascii(value)}\n" for key, value, _ in nothing if value is not None
    )
    assert parse(text.encode(), "config.toml") == Config()
    path.write_bytes(FULL)
    told = {key: (value, source) for key, value, source in in_force(path)}
    assert told["idle.after"] == ("90s", "file") and told["start.session"] == ("120s", "default")
    assert told["agents.codex.command"] == (["codex-acp", "-x"], "file")
    assert told["agents.codex.env"] == (["CODEX_HOME"], "file")
    path.write_text("nonsense = 1")
    with pytest.raises(ConfigFault, match="nonsense"):
        in_force(path)
