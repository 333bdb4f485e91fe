"""The unit for systemd's user manager (systemd.service(5), systemd.exec(5), systemd.kill(5))."""

import os
import re
from collections.abc import Mapping

from acpmux.units.unit import UNSEALED, Facts, Manager, refuse, seal

NAME = "acpmux.service"
_USER = ("systemctl", "--user")
_WORD = r'"((?:[^"\\]|\\.)*)"'

_TEMPLATE = f"""\
# {UNSEALED}
# To change it: systemctl --user edit acpmux. A line changed here is kept, but then no later install renews this file.
[Unit]
Description=acpmux, durable sessions of coding agents

[Service]
Type=notify
ExecStart=:%s -m acpmux daemon run
WorkingDirectory=/
Environment=%s
Environment=%s

# Agents and their hosts live in this unit's control group and must outlive the daemon: the next one takes them over.
# So a stop or a restart signals the daemon alone, and one of them that runs out of memory does not end all others.
KillMode=process
OOMPolicy=continue
# The limit of one service is for one program; here are all agents, and what they build.
TasksMax=infinity

# 0: asked to end, or another daemon serves this home. 2: config.toml does not hold, and does not heal by itself.
Restart=on-failure
RestartPreventExitStatus=2

[Install]
WantedBy=default.target
"""


def manager(env: Mapping[str, str]) -> Manager:
    """systemd's user manager; `env` says where units are kept (XDG_CONFIG_HOME)."""
    folder = env.get("XDG_CONFIG_HOME", "").strip() or os.path.expanduser("~/.config")
    return Manager(
        name="systemd",
        file=os.path.join(folder, "systemd/user", NAME),
        render=render,
        read=read,
        reload=((*_USER, "daemon-reload"),),
        start=(*_USER, "enable", "--now", NAME),
        stop=(*_USER, "disable", "--now", NAME),
        show=(*_USER, "show", "--property=MainPID", NAME),
        begin=(*_USER, "start", NAME),
        apply="systemctl --user restart acpmux",
        logs="journalctl --user -u acpmux",
    )


def render(facts: Facts) -> str:
    """The unit's text. Raises: UsageFault.

    `:` before the program takes `$` as it is. systemd runs no program whose path holds a quote, a backslash or a
    control character.
    """
    refuse(facts, program=r"[\"'\\\x00-\x1f\x7f]", values=r"\0")
    home, path = f"ACPMUX_HOME={facts.home}", f"PATH={facts.path}"
    return seal(_TEMPLATE % (_quoted(facts.program), _quoted(home), _quoted(path)))


def read(text: str) -> Facts | None:
    """What a unit runs, also one that was edited; None when it says no program."""
    program = re.search(rf"^ExecStart=[-:@!+]*(?:{_WORD}|(\S+))", text, re.MULTILINE)
    pairs = (_plain(word).partition("=") for word in re.findall(rf"^Environment={_WORD}", text, re.MULTILINE))
    values = {name: value for name, _, value in pairs}
    if program is None:
        return None
    return Facts(_plain(program[1] or program[2]), values.get("ACPMUX_HOME", ""), values.get("PATH", ""))


def _quoted(text: str) -> str:
    """One word: quoted, with C escapes, `%` no specifier."""
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return '"' + re.sub(r"[\x01-\x1f\x7f]", lambda found: f"\\x{ord(found[0]):02x}", text) + '"'


def _plain(word: str) -> str:
    """The inverse of `_quoted`, without its quotes."""
    return re.sub(
        r"\\x([0-9a-f]{2})|\\(.)|%(%)",
        lambda found: chr(int(found[1], 16)) if found[1] else found[2] or found[3],
        word,
    )
