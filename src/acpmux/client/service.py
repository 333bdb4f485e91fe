"""The unit that is installed for the daemon, and its service manager's word and hand."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass

from acpmux import places
from acpmux.errors import AcpmuxError, OwnFault
from acpmux.units import systemd
from acpmux.units.unit import Argv, Facts, Manager, State, judge

SHOW_BUDGET_S = 5.0  # a service manager answers from memory
START_BUDGET_S = 90.0  # systemd's own for a start, and what a stop takes that is under way
MAX_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Seen:
    """The unit that is there: its `state`, its text and what it runs (None where it can't be said)."""

    manager: Manager
    state: State
    text: str | None
    facts: Facts | None

    @property
    def program_gone(self) -> bool:
        return self.facts is not None and not os.access(self.facts.program, os.X_OK)


def wanted() -> Facts:
    """What a unit installed now would run."""
    return Facts(sys.executable, places.home_of(os.environ), os.environ.get("PATH", os.defpath))


def look() -> Seen:
    """Reads the unit that is there. Raises: OwnFault; UsageFault when this installation can't be put into one."""
    manager = _manager()
    try:
        with open(manager.file, encoding="utf-8", errors="replace", newline="") as file:
            text = file.read(MAX_BYTES)
    except FileNotFoundError:
        text = None
    except OSError as error:
        raise OwnFault(f"{manager.file} can't be read: {error.strerror}") from None
    return Seen(manager, judge(manager, text, wanted()), text, manager.read(text) if text is not None else None)


def begin(home: str) -> bool:
    """Has the service started when its unit is for this home. False when there is none or it does not start."""
    try:
        seen = look()
        if seen.facts is None or seen.facts.home != home or seen.program_gone:
            return False
        return run(seen.manager.begin, START_BUDGET_S).returncode == 0
    except AcpmuxError:
        return False


def pid_of(manager: Manager) -> int | None:
    """The daemon's pid as its service manager knows it; None when it runs none or can't be asked."""
    try:
        done = run(manager.show, SHOW_BUDGET_S)
    except OwnFault:
        return None
    found = re.search(r"(?:MainPID=|\bpid = )([1-9]\d*)", done.stdout)
    return int(found[1]) if found and done.returncode == 0 else None


def run(command: Argv, budget_s: float) -> "subprocess.CompletedProcess[str]":
    """Raises: OwnFault when it can't be run or takes too long."""
    try:
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=budget_s
        )
    except subprocess.TimeoutExpired:
        raise OwnFault(f"{' '.join(command)} took over {budget_s:g} s") from None
    except OSError as error:
        raise OwnFault(f"{command[0]} can't be run: {error.strerror}") from None


def _manager() -> Manager:
    if sys.platform == "linux":
        return systemd.manager(os.environ)
    if sys.platform == "darwin":
        from acpmux.units import launchd  # its parser of XML is for there alone

        return launchd.manager(os.getuid())
    raise OwnFault(f"no service manager is known on {sys.platform}. The first command starts the daemon: acpmux ls")
