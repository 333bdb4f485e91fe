"""Reading configurations of others: files, texts and tables of servers, each bounded and typed.

Its one rule: what is not wholly understood adds nothing, so its servers keep the harness up, and is named. Everything
here runs in the forked child of `launch.py`, which can be ended: a file may hang for ever. Read next: `readers.py`,
what each agent reads.
"""

import json
import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, cast

from acpmux.model.process import Launching, Server

MAX_BYTES = 32 * 1024 * 1024  # claude keeps its history in .claude.json; it grows to megabytes

_STARTED_WITH = ("command", "args", "env", "environment", "cwd")


class Named(NamedTuple):
    """One server with what its own start is looked up with: the folder it runs in and its PATH."""

    server: Server
    cwd: str
    path: str


class Found(NamedTuple):
    """`problems` are the sources, or servers of a source, that added nothing; `places` all that was looked at."""

    named: tuple[Named, ...]
    problems: tuple[str, ...]
    places: tuple[str, ...]


class SourceError(ValueError):
    """A source, or one server in it, that is not understood; the text says why."""


class Reading:
    """Servers by name, of one name the last definition, and what is to be said of the places they came from."""

    def __init__(self, launching: Launching) -> None:
        self.at = launching
        self._by_name: dict[str, Named] = {}
        self._problems: list[str] = []
        self._places: list[str] = []

    @property
    def home(self) -> str:
        return self.at.env.get("HOME") or os.path.expanduser("~")

    def found(self) -> Found:
        return Found(tuple(self._by_name.values()), tuple(self._problems), tuple(self._places))

    def file(self, path: str, parse: Callable[[str], object], wanted: bool = False) -> dict[str, Any]:
        """The file as an object, empty when it adds nothing. One that is `wanted` and missing is a problem."""
        path = os.path.join(self.at.cwd, path)
        try:
            told = as_table(parse(_text(path)), "it")
        except FileNotFoundError:
            self._places.append(f"{path}: not there")
            if wanted:
                self._problems.append(f"{path} is not there")
            return {}
        except OSError as error:
            self.problem(path, f"can't be read: {error.strerror}")
            return {}
        except (SourceError, ValueError, RecursionError) as error:
            self.problem(path, str(error)[:200])
            return {}
        self._places.append(f"{path}: read")
        return told

    def text(self, text: str, where: str) -> dict[str, Any]:
        """The same for a configuration that is given as text."""
        try:
            return as_table(parse_json(text), "it")
        except (SourceError, ValueError, RecursionError) as error:
            self.problem(where, str(error)[:200])
            return {}

    def problem(self, where: str, why: str) -> None:
        self._problems.append(f"{where}: {why}")

    def add(self, where: str, servers: object, make: Callable[["Reading", str, dict[str, Any]], Named | None]) -> None:
        """Takes every server of a table; one that is not understood is named and takes its name from nobody."""
        try:
            told = as_table(servers, "the table of servers") if servers is not None else {}
        except SourceError as error:
            self.problem(where, str(error))
            return
        for name, entry in told.items():
            self._by_name.pop(name, None)  # a later definition holds, also one that is off or not understood
            try:
                named = make(self, name, as_table(entry, "it"))
            except SourceError as error:
                self.problem(where, f"server {name[:60]!r}: {error}")
                continue
            if named is not None:
                self._by_name[name] = named._replace(server=named.server._replace(source=where))


def named(reading: Reading, name: str, command: object, args: object, env: object, cwd: object = None) -> Named:
    """Raises: SourceError naming what is not as it must be."""
    if not isinstance(command, str) or not command:
        raise SourceError("its command is not a text")
    if not isinstance(args, list) or not all(isinstance(arg, str) for arg in cast("list[object]", args)):
        raise SourceError("its arguments are not texts")
    told = as_table(env, "its environment")
    path = told.get("PATH")
    server = Server(name, command, tuple(cast("list[str]", args)), None, "")
    folder = os.path.join(reading.at.cwd, cwd) if isinstance(cwd, str) else reading.at.cwd
    return Named(server, folder, path if isinstance(path, str) else reading.at.env.get("PATH", os.defpath))


# ------------------------------------------------------------ small parts


def add_merged(
    reading: Reading,
    layers: list[tuple[str, object]],
    make: Callable[[Reading, str, dict[str, Any]], Named | None],
) -> None:
    """Tables that are merged member by member, a later layer's members over an earlier one's."""
    merged: dict[str, dict[str, Any]] = {}
    where: dict[str, str] = {}
    for path, servers in layers:
        if servers is None:
            continue
        if not isinstance(servers, dict):
            reading.problem(path, "the table of servers is not a table")
            continue
        for name, entry in cast("dict[str, Any]", servers).items():
            if isinstance(entry, dict):
                merged[name] = merged.get(name, {}) | cast("dict[str, Any]", entry)
                where[name] = path
            else:
                reading.problem(path, f"server {name[:60]!r}: it is not a table")
                merged.pop(name, None)
    for name, entry in merged.items():
        reading.add(where[name], {name: entry}, make)


def expanded(told: dict[str, Any], expand: Callable[[str], str]) -> dict[str, Any]:
    """The server with the texts of what it is started with expanded."""
    return {key: _deep(item, expand) if key in _STARTED_WITH else item for key, item in told.items()}


def _deep(told: Any, expand: Callable[[str], str]) -> Any:
    if isinstance(told, str):
        return expand(told)
    if isinstance(told, list):
        return [_deep(item, expand) for item in cast("list[Any]", told)]
    if isinstance(told, dict):
        return {key: _deep(item, expand) for key, item in cast("dict[str, Any]", told).items()}
    return told


def _text(path: str) -> str:
    with open(path, "rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise SourceError(f"over {MAX_BYTES} bytes")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SourceError(f"not UTF-8 (byte {error.start})") from None


def parse_json(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SourceError(f"not plain JSON: {error}") from None


def parse_toml(text: str) -> object:
    import tomllib  # only in the reading child: the host itself stays small

    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise SourceError(f"not TOML: {error}") from None


def as_table(told: object, what: str) -> dict[str, Any]:
    if not isinstance(told, dict):
        raise SourceError(f"{what} is not a table")
    return cast("dict[str, Any]", told)


def project_root(folder: str) -> str:
    """The nearest folder upward that holds `.git`, else the folder itself."""
    for above in _upward(folder):
        if os.path.exists(os.path.join(above, ".git")):
            return above
    return folder


def _upward(folder: str) -> Iterator[str]:
    while True:
        yield folder
        above = os.path.dirname(folder)
        if above == folder:
            return
        folder = above


def between(root: str, folder: str) -> list[str]:
    """The folders from `root` down to `folder`."""
    found: list[str] = []
    for above in _upward(folder):
        found.append(above)
        if above == root:
            break
    return found[::-1]
