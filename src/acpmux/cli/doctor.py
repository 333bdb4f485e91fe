"""`doctor`: what this machine has, and what acpmux does without on one that lacks it."""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click

from acpmux.cli.output import json_option, paint, print_json
from acpmux.cli.service import LINGER, LOGOUT, lingers, words
from acpmux.client import connect
from acpmux.client.service import look
from acpmux.errors import AcpmuxError, DaemonUnreachable
from acpmux.paths import Paths
from acpmux.places import SOCKET_PATH_BYTES
from acpmux.units.unit import State

PROBE_BUDGET_S = 10.0  # one start of Python
ANSWER_BUDGET_S = 5.0  # the daemon answers from memory

_SUBREAPER = "import ctypes, sys; sys.exit(0 if ctypes.CDLL(None, use_errno=True).prctl(36, 1, 0, 0, 0) == 0 else 1)"


@dataclass(frozen=True, slots=True)
class Finding:
    """`level` is ok, without (works, with less) or broken."""

    what: str
    level: str
    detail: str
    advice: str | None = None


@click.command(
    "doctor", epilog="Examples:\n\n\b\n  acpmux doctor\n  acpmux doctor --json | jq '.[] | select(.level != \"ok\")'"
)
@json_option
def doctor_command(as_json: bool) -> None:
    """Check this machine: what is broken (exit code 1), and what acpmux does without."""
    findings = [check() for check in CHECKS]
    if as_json:
        print_json([{"what": f.what, "level": f.level, "detail": f.detail, "advice": f.advice} for f in findings])
    else:
        colours = {"ok": "green", "without": "yellow", "broken": "red"}
        for finding in findings:
            click.echo(f"{paint(finding.level.ljust(8), colours[finding.level])} {finding.what}: {finding.detail}")
            if finding.advice:
                click.echo(f"         {paint(finding.advice, 'dim')}")
    sys.exit(1 if any(finding.level == "broken" for finding in findings) else 0)


def _python() -> Finding:
    return Finding("Python", "ok", f"{platform.python_version()} at {sys.executable}")


def _proc() -> Finding:
    what = "process table"
    if not sys.platform.startswith("linux"):
        told = f"no census on {platform.system()} yet: idle sessions stay awake"
        return Finding(what, "without", told, "acpmux hibernate refuses there; acpmux stop ends an agent")
    others = [pid for pid in os.listdir("/proc") if pid.isdigit() and int(pid) == 1] if os.path.isdir("/proc") else []
    if not others:
        told = "/proc is missing or hides processes: a listing is not whole, and idle sessions stay awake"
        return Finding(what, "without", told, "mount /proc without hidepid for this user")
    return Finding(what, "ok", "/proc shows every process")


def _children() -> Finding:
    what = "children lists"
    if os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
        return Finding(what, "ok", "the kernel lists a thread's children")
    return Finding(what, "without", "the kernel lists none (CONFIG_PROC_CHILDREN): idle sessions stay awake")


def _fork_counter() -> Finding:
    try:
        int(Path("/proc/loadavg").read_text().split()[-1])
    except (OSError, ValueError, IndexError):
        return Finding("fork counter", "without", "/proc/loadavg has none: no listing is stable, sessions stay awake")
    return Finding("fork counter", "ok", "/proc/loadavg tells the last pid")


def _pidfd() -> Finding:
    what = "pidfd"
    if not hasattr(os, "pidfd_open"):
        return Finding(what, "broken", "this system has none: acpmux signals nobody without proof of identity")
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as error:
        return Finding(what, "broken", f"pidfd_open fails: {error.strerror}", "it needs Linux 5.3 or newer")
    return Finding(what, "ok", "signals go to proven identities")


def _subreaper() -> Finding:
    done = subprocess.run(
        [sys.executable, "-c", _SUBREAPER], capture_output=True, timeout=PROBE_BUDGET_S, stdin=subprocess.DEVNULL
    )
    if done.returncode == 0:
        return Finding("subreaper", "ok", "work that leaves an agent's tree stays visible")
    return Finding("subreaper", "without", "none here: work that leaves an agent's tree is not shown by acpmux ps")


def _home() -> Finding:
    paths = Paths.find(os.environ)
    try:
        paths.prepare()
    except AcpmuxError as error:
        return Finding("state folder", "broken", error.message)
    free_mb = shutil.disk_usage(paths.home).free // 1_000_000
    level = "ok" if free_mb > 100 else "broken"
    return Finding("state folder", level, f"{paths.home}, {free_mb} MB free")


def _config() -> Finding:
    from acpmux.daemon import check_config

    try:
        return Finding("config", "ok", check_config())
    except AcpmuxError as error:
        return Finding("config", "broken", error.message, "no daemon starts with it")


def _log() -> Finding:
    from acpmux.daemon import check_log

    try:
        return Finding("log", "ok", check_log())
    except AcpmuxError as error:
        hint = "save what can be read: acpmux daemon shutdown, then any command; agents run on, the file is kept aside"
        return Finding("log", "broken", error.message, hint)


def _socket() -> Finding:
    paths = Paths.find(os.environ)
    wanted = paths.home / "acpmux.sock"
    if paths.socket == wanted:
        return Finding("socket path", "ok", str(wanted))
    return Finding("socket path", "ok", f"{wanted} is over {SOCKET_PATH_BYTES} bytes; it is {paths.socket}")


def _daemon() -> Finding:
    try:
        with connect(start=False) as connection:
            told = connection.request("_acpmux/status", {}, ANSWER_BUDGET_S)
    except DaemonUnreachable:
        return Finding("daemon", "ok", "none runs; the first command starts it")
    except AcpmuxError as error:
        return Finding("daemon", "broken", error.message)
    line = f"version {told['version']}, pid {told['pid']}, {told['sessions']['total']} sessions"
    if told["unknown"]:
        pids = ", ".join(str(row["pid"]) for row in told["unknown"])
        line += f"; agents of sessions that are not in its log run on: pid {pids}"
        advice = "put acpmux.db back (daemon shutdown first), or end them: acpmux daemon shutdown --end-agents"
        return Finding("daemon", "without", line, advice)
    return Finding("daemon", "ok", line)


def _agents() -> Finding:
    from acpmux.agents import profiles

    path = os.environ.get("PATH", os.defpath)
    found = [name for name, p in profiles.profiles().items() if name != "demo" and profiles.installed(p, path)]
    if found:
        return Finding("agents", "ok", ", ".join(found))
    return Finding("agents", "without", "none but the demo agent and config.toml's own", "see: acpmux agents")


def _service() -> Finding:
    try:
        seen = look()
    except AcpmuxError as error:
        return Finding("service", "ok", error.message)
    if seen.state is State.NONE:
        return Finding("service", "ok", "none installed; acpmux daemon install keeps the daemon running")
    if seen.program_gone or seen.state is State.OLD:
        return Finding("service", "without", words(seen), f"acpmux daemon install, then: {seen.manager.apply}")
    return Finding("service", "ok", words(seen))


def _linger() -> Finding:
    """systemd ends everything of a user's manager at logout, and of a session's when it is told to."""
    what = "logout"
    if shutil.which("loginctl") is None:
        return Finding(what, "ok", "no session manager ends processes at logout")
    if not lingers():
        if any("KillUserProcesses=yes" in line for line in _logind_lines() if not line.startswith("#")):
            return Finding(what, "without", "KillUserProcesses is on: agents end when you log out", LINGER)
        if _service_installed():
            return Finding(what, "without", LOGOUT, LINGER)
    return Finding(what, "ok", "sessions live on when you log out")


def _service_installed() -> bool:
    try:
        return look().state is not State.NONE
    except AcpmuxError:
        return False


def _logind_lines() -> list[str]:
    try:
        return Path("/etc/systemd/logind.conf").read_text("utf-8", "replace").splitlines()
    except OSError:
        return []


CHECKS: tuple[Callable[[], Finding], ...] = (
    _python,
    _proc,
    _children,
    _fork_counter,
    _pidfd,
    _subreaper,
    _home,
    _config,
    _log,
    _socket,
    _daemon,
    _service,
    _agents,
    _linger,
)
