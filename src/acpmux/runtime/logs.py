"""The daemon's log: key=value lines, 0600, bounded. No prompt, environment or token is ever in it."""

import logging
import logging.handlers
import os
from io import TextIOWrapper
from pathlib import Path

FILE_BYTES = 2_000_000
OLD_FILES = 3


def set_up(folder: Path) -> None:
    """Sends the log of this process, and asyncio's, to `daemon.log` in the folder: nothing grows without a bound."""
    handler = _PrivateFiles(folder / "daemon.log", maxBytes=FILE_BYTES, backupCount=OLD_FILES, encoding="utf-8")
    handler.setFormatter(_OneEntry("%(asctime)s %(levelname)s %(name)s %(message)s"))
    for name, level in (("acpmux", logging.INFO), ("asyncio", logging.WARNING)):
        _send(logging.getLogger(name), handler, level)


def _send(root: logging.Logger, handler: logging.Handler, level: int) -> None:
    for old in tuple(root.handlers):
        root.removeHandler(old)
        old.close()
    root.addHandler(handler)
    root.setLevel(level)
    root.propagate = False


class _PrivateFiles(logging.handlers.RotatingFileHandler):
    """Each new file is the user's alone, whatever the umask."""

    def _open(self) -> TextIOWrapper:
        return open(
            self.baseFilename,
            "a",
            encoding=self.encoding,
            errors="backslashreplace",
            opener=lambda path, flags: os.open(path, flags, 0o600),
        )


class _OneEntry(logging.Formatter):
    """Lines behind an entry's first are set in: a text from outside can't pass for an entry of its own."""

    def format(self, record: logging.LogRecord) -> str:
        return "\n    ".join(super().format(record).splitlines())
