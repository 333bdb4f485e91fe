"""Where this user's home and socket are, as text: the little of `paths.py` that is on the way of every command.

No pathlib here: it costs a one-shot command a tenth of its start.
"""

import os
import sys
from collections.abc import Mapping

SOCKET_PATH_BYTES = 100  # sun_path holds 108 bytes on Linux and 104 elsewhere, its end mark included


def home_of(env: Mapping[str, str]) -> str:
    """`ACPMUX_HOME`, else the platform's user state folder."""
    told = env.get("ACPMUX_HOME")
    if told:
        return os.path.abspath(told)
    if sys.platform == "linux":  # what platformdirs says there, by the XDG base directory specification
        state = env.get("XDG_STATE_HOME", "").strip()
        return os.path.join(state if os.path.isabs(state) else os.path.expanduser("~/.local/state"), "acpmux")
    import platformdirs

    return platformdirs.user_state_dir("acpmux", appauthor=False)


def socket_of(home: str) -> str:
    """Where the daemon of this home listens."""
    return fitting(os.path.join(home, "acpmux.sock"), home, "acpmux.sock")


def nameless(home: str) -> str | None:
    """The second address of this home's daemon, None where there is none: no folder holds it, so nobody can remove it.

    It is one folder's, whatever path leads there, and a second daemon can't have it (abstract sockets, unix(7)).
    """
    if sys.platform != "linux":
        return None
    try:
        told = os.stat(home)
    except OSError:
        return None
    return f"\0acpmux/{os.getuid()}/daemon/{told.st_dev:x}/{told.st_ino:x}"


def fits(wanted: str) -> bool:
    return len(os.fsencode(wanted)) <= SOCKET_PATH_BYTES


def fitting(wanted: str, home: str, short_name: str) -> str:
    """A socket's path, moved to the short folder of its home when it is too long for the platform."""
    return wanted if fits(wanted) else os.path.join(short_folder(home), short_name)


def short_folder(home: str) -> str:
    """A private folder whose name is made from the user and this home, for homes with long paths.

    In /tmp and nowhere else: daemon and clients must find the same one, whatever their environments say.
    """
    import hashlib  # only for long paths

    digest = hashlib.sha256(os.fsencode(home)).hexdigest()[:12]
    return f"/tmp/acpmux-{os.getuid()}-{digest}"
