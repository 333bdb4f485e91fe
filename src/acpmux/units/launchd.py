"""The agent's property list for launchd on macOS (launchd.plist(5), launchctl(1))."""

import os
import plistlib
import shlex

from acpmux.units.unit import UNSEALED, Facts, Manager, refuse, seal
from acpmux.untyped import as_list, as_object

LABEL = "acpmux.daemon"
_NOT_IN_XML = "[\x00-\x1f\x7f\ufffe\uffff]"


def manager(uid: int) -> Manager:
    """launchd's domain of this user's desktop session."""
    file = os.path.expanduser(f"~/Library/LaunchAgents/{LABEL}.plist")
    domain, target = f"gui/{uid}", f"gui/{uid}/{LABEL}"
    return Manager(
        name="launchd",
        file=file,
        render=render,
        read=read,
        reload=(),
        start=("launchctl", "bootstrap", domain, file),
        stop=("launchctl", "bootout", target),
        show=("launchctl", "print", target),
        begin=("launchctl", "kickstart", target),
        apply=f"launchctl bootout {target}; launchctl bootstrap {domain} {shlex.quote(file)}",
        logs="logs/daemon.out of the state folder",
        once=True,
    )


def render(facts: Facts) -> str:
    """The property list's text. Raises: UsageFault for what XML can't hold."""
    refuse(facts, program=_NOT_IN_XML, values=_NOT_IN_XML)
    output = os.path.join(facts.home, "logs/daemon.out")
    told = {
        "Label": LABEL,
        "ProgramArguments": [facts.program, "-m", "acpmux", "daemon", "run"],
        "WorkingDirectory": "/",
        "EnvironmentVariables": {"ACPMUX_HOME": facts.home, "PATH": facts.path},
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},  # 0: asked to end, or another daemon serves this home
        "AbandonProcessGroup": True,  # hosts and agents outlive the daemon
        "ProcessType": "Interactive",  # what an agent builds is not throttled as a background job
        "StandardOutPath": output,
        "StandardErrorPath": output,
    }
    head, body = plistlib.dumps(told, sort_keys=False).decode().split("<plist", 1)
    return seal(f"{head}<!-- {UNSEALED} -->\n<plist{body}")


def read(text: str) -> Facts | None:
    """What a property list runs, also one that was edited; None when it says no program."""
    try:
        told = as_object(plistlib.loads(text.encode()))
    except Exception:  # plistlib has a dozen kinds for a file that is none
        return None
    words, values = as_list(told.get("ProgramArguments")), as_object(told.get("EnvironmentVariables"))
    if not words:
        return None
    return Facts(str(words[0]), str(values.get("ACPMUX_HOME", "")), str(values.get("PATH", "")))
