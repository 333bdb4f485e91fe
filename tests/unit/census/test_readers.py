import json
from pathlib import Path
from typing import Any

import pytest

from acpmux.census.readers import read
from acpmux.census.sources import Found
from acpmux.model.process import Launching

FS = {"command": "npx", "args": ["-y", "fs", "/tmp"]}


class Machine:
    """A home, a project in it, and what a launch reads of them."""

    def __init__(self, folder: Path) -> None:
        self.home, self.project = folder / "home", folder / "home/web"
        self.project.mkdir(parents=True)
        self.env: dict[str, str] = {"HOME": str(self.home), "PATH": "/usr/bin"}
        self.command: tuple[str, ...] = ("agent",)

    def write(self, path: str, told: Any) -> Path:
        file = self.home / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(told if isinstance(told, str) else json.dumps(told))
        return file

    def read(self, config: str) -> Found:
        return read(Launching(self.command, str(self.project), self.env, (config,)))

    def servers(self, config: str) -> dict[str, list[str]]:
        return {one.server.name: [one.server.command, *one.server.args] for one in self.read(config).named}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


# ------------------------------------------------------------ claude


def test_claude_user_project_and_local_servers_and_the_nearest_of_one_name(machine: Machine) -> None:
    local = {"a": {"command": "local"}, "d": {"command": "d"}}
    machine.write(
        ".claude.json",
        {
            "mcpServers": {"a": {"command": "user"}, "b": {"command": "user"}, "c": FS},
            "projects": {str(machine.project): {"mcpServers": local}, "/other": {"mcpServers": {"z": FS}}},
        },
    )
    machine.write("web/.mcp.json", {"mcpServers": {"a": {"command": "project"}, "b": {"command": "project"}}})
    found = machine.servers("claude")
    assert found == {"a": ["local"], "b": ["project"], "c": ["npx", "-y", "fs", "/tmp"], "d": ["d"]}


def test_claude_config_dir_takes_the_place_of_the_home(machine: Machine) -> None:
    machine.write(".claude.json", {"mcpServers": {"home": FS}})
    machine.write("elsewhere/.claude.json", {"mcpServers": {"here": FS}})
    machine.env["CLAUDE_CONFIG_DIR"] = str(machine.home / "elsewhere")
    assert list(machine.servers("claude")) == ["here"]


def test_claude_mcp_config_of_every_form(machine: Machine) -> None:
    machine.write("web/rel.json", {"mcpServers": {"rel": FS}})
    absolute = machine.write("abs.json", {"mcpServers": {"abs": FS}})
    machine.write(".claude.json", {"mcpServers": {"user": FS}})
    inline = json.dumps({"mcpServers": {"inline": FS}})
    machine.command = ("claude", "--mcp-config", "rel.json", str(absolute), "--x", "y", f"--mcp-config={inline}")
    assert set(machine.servers("claude")) == {"rel", "abs", "inline", "user"}
    machine.command += ("--strict-mcp-config",)
    assert set(machine.servers("claude")) == {"rel", "abs", "inline"}


def test_claude_mcp_config_that_is_missing_is_named(machine: Machine) -> None:
    machine.command = ("claude", "--mcp-config", "gone.json")
    assert "gone.json is not there" in machine.read("claude").problems[0]


@pytest.mark.parametrize(
    ("text", "value"),
    [("${A}", "1"), ("x${A}y${A}", "x1y1"), ("${B:-two}", "two"), ("${A:-two}", "1"), ("$A", "$A"), ("${B:-}", "")],
)
def test_claude_expands_variables_in_all_it_starts(machine: Machine, text: str, value: str) -> None:
    machine.env["A"] = "1"
    machine.write("web/.mcp.json", {"mcpServers": {"s": {"command": "c", "args": [text], "env": {"E": text}}}})
    assert machine.servers("claude") == {"s": ["c", value]}


def test_variable_that_is_not_set_adds_nothing_and_is_named(machine: Machine) -> None:
    machine.write("web/.mcp.json", {"mcpServers": {"s": {"command": "c", "args": ["${NOPE}"]}, "t": FS}})
    found = machine.read("claude")
    assert [one.server.name for one in found.named] == ["t"]
    assert "server 's': ${NOPE} is not set" in found.problems[0]


def test_server_over_the_network_has_no_process(machine: Machine) -> None:
    machine.write(
        "web/.mcp.json", {"mcpServers": {"h": {"type": "http", "url": "http://x"}, "s": {"type": "sse", "url": "x"}}}
    )
    found = machine.read("claude")
    assert found.named == () and found.problems == ()


# ------------------------------------------------------------ codex


def test_codex_user_servers_and_those_of_a_trusted_project(machine: Machine) -> None:
    (machine.home / "web/.git").mkdir()
    user = '[mcp_servers.a]\ncommand = "a"\nargs = ["1"]\n[mcp_servers.off]\ncommand = "x"\nenabled = false\n[mcp_servers.h]\nurl = "u"\n'
    machine.write(".codex/config.toml", user)
    machine.write("web/.codex/config.toml", '[mcp_servers.a]\nargs = ["2"]\n[mcp_servers.p]\ncommand = "p"\n')
    assert machine.servers("codex") == {"a": ["a", "1"]}
    machine.write(".codex/config.toml", user + f'[projects."{machine.project}"]\ntrust_level = "trusted"\n')
    assert machine.servers("codex") == {"a": ["a", "2"], "p": ["p"]}


def test_codex_home_takes_the_place_of_the_home(machine: Machine) -> None:
    machine.write("ch/config.toml", '[mcp_servers.a]\ncommand = "a"\n')
    machine.env["CODEX_HOME"] = str(machine.home / "ch")
    assert list(machine.servers("codex")) == ["a"]


def test_servers_own_path_and_folder_are_what_its_command_is_looked_up_with(machine: Machine) -> None:
    machine.write(".codex/config.toml", '[mcp_servers.a]\ncommand = "a"\ncwd = "/srv"\nenv = { PATH = "/opt" }\n')
    (one,) = machine.read("codex").named
    assert (one.cwd, one.path) == ("/srv", "/opt")


# ------------------------------------------------------------ gemini, opencode


def test_gemini_project_settings_hold_over_the_users(machine: Machine) -> None:
    machine.env |= {"GEMINI_CLI_SYSTEM_SETTINGS_PATH": "/none", "GEMINI_CLI_SYSTEM_DEFAULTS_PATH": "/none", "A": "1"}
    machine.write(
        ".gemini/settings.json", {"mcpServers": {"a": FS, "b": {"command": "$A", "args": ["${A}", "${B:-2}"]}}}
    )
    machine.write("web/.gemini/settings.json", {"mcpServers": {"a": {"command": "p"}, "h": {"httpUrl": "u"}}})
    assert machine.servers("gemini") == {"b": ["1", "1", "2"], "a": ["p"]}


def test_opencode_layers_are_merged_and_what_is_off_is_left_out(machine: Machine) -> None:
    (machine.project / ".git").mkdir()
    machine.env["A"] = "1"
    local = {"type": "local", "command": ["npx", "-y", "{env:A}"]}
    machine.write(
        ".config/opencode/opencode.json", {"mcp": {"a": local, "b": local, "r": {"type": "remote", "url": "u"}}}
    )
    machine.write("web/opencode.json", {"mcp": {"b": {"enabled": False}, "c": {"type": "local", "command": ["c"]}}})
    assert machine.servers("opencode") == {"a": ["npx", "-y", "1"], "c": ["c"]}
    machine.env["OPENCODE_CONFIG_CONTENT"] = json.dumps({"mcp": {"i": {"type": "local", "command": ["i"]}}})
    assert "i" in machine.servers("opencode")


def test_opencode_that_takes_a_part_from_a_file_is_named(machine: Machine) -> None:
    machine.write("web/opencode.json", {"mcp": {"a": {"type": "local", "command": ["x", "{file:./k}"]}}})
    assert "from a file" in machine.read("opencode").problems[0]


# ------------------------------------------------------------ bad input

PLACE = {
    "claude": "web/.mcp.json",
    "codex": ".codex/config.toml",
    "gemini": "web/.gemini/settings.json",
    "opencode": "web/opencode.json",
}


@pytest.mark.parametrize("config", PLACE)
@pytest.mark.parametrize(
    "data",
    [b'{"mcpServers": {', b"\xff\xfe{}", b"[" * 100_000, b"[]", b'"x"', b"{} // a comment", b"\x00", b"1e999", b'{"a":' * 50_000],
)  # fmt: skip
def test_source_that_is_not_understood_adds_nothing_and_is_named(machine: Machine, config: str, data: bytes) -> None:
    machine.write(PLACE[config], "").write_bytes(data)
    found = machine.read(config)
    assert found.named == () and PLACE[config] in found.problems[0]


@pytest.mark.parametrize(
    "server",
    ["x", 1, None, [], {"command": 1}, {"command": ""}, {"command": "c", "args": "x"}, {"command": "c", "args": [1]}, {"command": "c", "env": [1]}, {}],
)  # fmt: skip
def test_server_of_the_wrong_shape_adds_nothing_and_harms_no_other(machine: Machine, server: Any) -> None:
    machine.write("web/.mcp.json", {"mcpServers": {"bad": server, "good": FS}})
    found = machine.read("claude")
    assert [one.server.name for one in found.named] == ["good"]
    assert "'bad'" in found.problems[0]


def test_later_definition_that_is_not_understood_hides_the_earlier(machine: Machine) -> None:
    machine.write(".claude.json", {"mcpServers": {"a": FS}})
    machine.write("web/.mcp.json", {"mcpServers": {"a": {"command": 1}}})
    assert machine.servers("claude") == {}


def test_every_place_that_was_looked_at_is_told(machine: Machine) -> None:
    machine.write(".claude.json", {})
    assert machine.read("claude").places == (
        f"{machine.home}/.claude.json: read",
        f"{machine.project}/.mcp.json: not there",
    )
