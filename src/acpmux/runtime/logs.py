"""The daemon's log: key=value lines, 0600, bounded. No prompt, environment or token is ever in it."""

import logging
import logging.handlers
import os
from pathlib import Path

_BYTES = 2_000_000
_FILES = 3


def set_up(folder: Path) -> None:
    """Sends the log of this process to `daemon.log` in the folder."""
    path = folder / "daemon.log"
    os.close(os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600))
    handler = logging.handlers.RotatingFileHandler(path, maxBytes=_BYTES, backupCount=_FILES, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    root = logging.getLogger("acpmux")
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    root.propagate = False
