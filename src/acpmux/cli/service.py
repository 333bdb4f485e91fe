"""`daemon install` and `daemon uninstall`: the daemon as a service of the user's service manager."""

import os
import shutil
from typing import Any

import click

from acpmux.cli.output import json_option, print_json
from acpmux.client import connect_soon
from acpmux.client.service import SHOW_BUDGET_S, Seen, look, pid_of, run, wanted
from acpmux.errors import AcpmuxError, DaemonUnreachable, OwnFault, StateFault
from acpmux.paths import Paths
from acpmux.units.unit import Argv, Manager, State

MANAGER_BUDGET_S = 100.0  # systemd gives a start 90 s
ANSWER_BUDGET_S = 10.0  # the daemon answers from memory

HAND_OVER = "acpmux daemon shutdown && acpmux daemon start"
LOGOUT = "logging out ends the user's services, agents too"
LINGER = "keep them: loginctl enable-linger"
_ENVIRONMENT = (
    "Agents get this shell's PATH, and else the environment of systemd's user manager. "
    "What an agent needs beside that: config.toml, [agents.NAME.env]"
)


@click.command("install", epilog="Examples:\n\n\b\n  acpmux daemon install\n  acpmux daemon install --print")
@click.option("--print", "print_", is_flag=True, help="Print the unit and write nothing.")
@click.option("--no-start", is_flag=True, help="Write the unit and do nothing with it.")
@click.option("--force", is_flag=True, help="Also over a unit that was edited or serves another state folder.")
@json_option
def install_command(print_: bool, no_start: bool, force: bool, as_json: bool) -> None:
    """Let systemd (launchd on macOS) start the daemon and keep it running. Nothing that runs is ended.

    Written is a unit of the user with this Python, this state folder (ACPMUX_HOME) and this PATH, in which agents are
    looked for. Run it again after acpmux or PATH has moved.
    """
    seen = look()
    there, text = seen.manager, seen.manager.render(wanted())
    if print_:
        print_json({"path": there.file, "text": text}) if as_json else click.echo(text, nl=False)
        return
    _check_own(seen, force, "written over")
    if not no_start:
        _check_ready(there)
    changed = text != seen.text
    if changed:
        Paths.find(os.environ).prepare()  # launchd opens its output in there
        _write(there.file, text)
    pid = None if no_start else _begin(seen)
    own = pid is not None and pid == pid_of(there)
    if as_json:
        print_json({"path": there.file, "changed": changed, "pid": pid, "started": own})
        return
    click.echo(f"{'Written' if changed else 'Unchanged'}: {there.file}")
    _tell(seen, pid, own, changed)


@click.command("uninstall", epilog="Examples:\n\n\b\n  acpmux daemon uninstall")
@click.option("--force", is_flag=True, help="Also a unit that was edited or serves another state folder.")
@json_option
def uninstall_command(force: bool, as_json: bool) -> None:
    """Stop the daemon's service and remove its unit. Agents run on; the next command's daemon takes them over."""
    seen = look()
    there = seen.manager
    if seen.state is not State.NONE:
        _check_own(seen, force, "removed")
        if shutil.which(there.stop[0]) and (not there.once or _known(there)):
            _order(there, there.stop)
        os.unlink(there.file)
        for command in there.reload if shutil.which(there.stop[0]) else ():
            _order(there, command)
    if as_json:
        print_json({"path": there.file, "removed": seen.state is not State.NONE})
    elif seen.state is State.NONE:
        click.echo(f"No unit is installed ({there.file}).")
    else:
        click.echo(f"Removed: {there.file}\nAgents run on; the next command starts a daemon that takes them over.")


def words(seen: Seen) -> str:
    """The unit that is there in one line."""
    if seen.state is State.NONE:
        return "none installed"
    told = [seen.manager.file]
    if seen.state is State.OLD:
        told.append("of another installation or version")
    if seen.state is State.EDITED:
        told.append("edited by hand")
    if seen.state is State.ELSEWHERE and seen.facts:
        told.append(f"for another state folder, {seen.facts.home}")
    if seen.program_gone and seen.facts:
        told.append(f"its Python is gone: {seen.facts.program}")
    return ", ".join(told)


def beside(pid: int | None = None) -> tuple[str, dict[str, Any] | None]:
    """What `daemon status` says of the unit beside the daemon of this pid: a line, and the same as JSON."""
    try:
        seen = look()
    except AcpmuxError as error:
        return error.message, None
    if seen.state is State.NONE or pid is None:
        return words(seen), None
    own = pid == pid_of(seen.manager)
    unit = {
        "manager": seen.manager.name,
        "path": seen.manager.file,
        "state": str(seen.state),
        "program": seen.facts and seen.facts.program,
        "programGone": seen.program_gone,
        "home": seen.facts and seen.facts.home,
        "startedThis": own,
    }
    told = own or seen.state is State.ELSEWHERE
    return words(seen) + ("" if told else f"; this daemon was not started by it: {HAND_OVER}"), unit


def lingers() -> bool:
    """Whether systemd keeps this user's manager without a login (loginctl enable-linger)."""
    import pwd

    try:
        return os.path.exists(f"/var/lib/systemd/linger/{pwd.getpwuid(os.getuid()).pw_name}")
    except KeyError:
        return False  # a user without a name has no manager either


def _check_own(seen: Seen, force: bool, what: str) -> None:
    if seen.state in (State.EDITED, State.ELSEWHERE) and not force:
        raise StateFault(f"not {what}: {words(seen)}. Do it all the same: --force")


def _check_ready(there: Manager) -> None:
    """Nothing is written for a service that can't start. Raises: ConfigFault; UnknownAgent; OwnFault."""
    from acpmux.daemon import check_config

    check_config()
    if shutil.which(there.start[0]) is None:
        raise OwnFault(f"this machine has no {there.start[0]}. The first command starts the daemon: acpmux ls")


def _write(path: str, text: str) -> None:
    """Whole or not at all."""
    new = f"{path}.new"
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644), "wb") as file:
            file.write(text.encode())
        os.replace(new, path)
    except OSError as error:
        raise OwnFault(f"{path} can't be written: {error.strerror}") from None


def _begin(seen: Seen) -> int | None:
    """Starts the service. Returns the pid of the daemon that answers then, which may be another one.

    None when it still serves another state folder: nothing that runs is ended.
    """
    there = seen.manager
    for command in there.reload:
        _order(there, command)
    if seen.state is State.ELSEWHERE and pid_of(there) is not None:
        return None
    if not there.once or not _known(there):
        _order(there, there.start)
    try:
        with connect_soon() as connection:
            return int(connection.request("_acpmux/status", {}, ANSWER_BUDGET_S)["pid"])
    except DaemonUnreachable as error:
        raise OwnFault(f"the service was started, but {error.message}. Its words: {there.logs}") from None


def _known(there: Manager) -> bool:
    return run(there.show, SHOW_BUDGET_S).returncode == 0


def _order(there: Manager, command: Argv) -> None:
    done = run(command, MANAGER_BUDGET_S)
    if done.returncode != 0:
        said = " / ".join(done.stderr.strip().splitlines()[:3]) or f"it gave {done.returncode}"
        raise OwnFault(
            f"{' '.join(command)}: {said}. The unit is {there.file}; try again in a login session of this user"
        )


def _tell(seen: Seen, pid: int | None, own: bool, changed: bool) -> None:
    there = seen.manager
    if pid is None and seen.state is State.ELSEWHERE:
        click.echo(f"It takes effect with: {there.apply}")
    elif pid is None:
        click.echo(f"Start it: {' && '.join(' '.join(argv) for argv in (*there.reload, there.start))}")
    elif not own:
        click.echo(f"Another daemon serves (pid {pid}) and goes on. To hand over, agents run on meanwhile:")
        click.echo(f"  {HAND_OVER}")
    elif changed and seen.state is not State.NONE:
        click.echo(f"The daemon runs (pid {pid}), by the earlier unit until: {there.apply}")
    else:
        click.echo(f"The daemon runs (pid {pid}).")
    if there.name == "systemd":
        click.echo(_ENVIRONMENT)
        if not lingers():
            click.echo(f"Without lingering, {LOGOUT}; {LINGER}")
