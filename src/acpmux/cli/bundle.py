"""`export` and `import`: a session as one file."""

import gzip
import os
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from io import BufferedReader
from typing import Any, BinaryIO, cast

import click

from acpmux.cli.output import json_option, print_json, session_argument
from acpmux.client import connect
from acpmux.client.connection import Connection
from acpmux.errors import UsageFault

ANSWER_BUDGET_S = 60.0
PAGE_BYTES = 4_000_000
LINE_BYTES = 64 * 1024 * 1024


@click.command(
    "export",
    epilog="Examples:\n\n\b\n  acpmux export web -o web.acpmux.gz\n  acpmux export web | ssh other acpmux import -",
)
@session_argument
@click.option("-o", "--output", default="-", metavar="FILE", help="Where to (default: standard output); .gz packs it.")
def export_command(name: str, output: str) -> None:
    """Write a session and its whole log as one bundle: lines of JSON, the session first.

    No command, no MCP server, no environment and no queued prompt is in it; what was said is.
    """
    with connect() as connection, _writing(output) as file:
        count = 0
        for line in _lines(connection, name):
            file.write(line + b"\n")
            count += 1
    if output != "-":
        click.echo(f"{output}: {name} with {count - 1} records")


def _lines(connection: Connection, name: str) -> Iterator[bytes]:
    """Up to what is the last record now: what comes meanwhile belongs to the next export."""
    after, last = 0, None
    while last is None or after < last:
        params = {"sessionId": name, "afterSeq": after, "lastSeq": last}
        told: dict[str, Any] = connection.request("_acpmux/export", params, ANSWER_BUDGET_S)
        after, last = told["next"], told["lastSeq"]
        for line in told["lines"]:
            yield line.encode()


@contextmanager
def _writing(output: str) -> Generator[BinaryIO]:
    """A file appears under its name only when it is whole."""
    if output == "-":
        yield sys.stdout.buffer
        return
    new = f"{output}.new"
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            if output.endswith(".gz"):
                with gzip.GzipFile(fileobj=file, mode="wb") as packed:
                    yield cast(BinaryIO, packed)
            else:
                yield file
        os.replace(new, output)
    except BaseException:
        os.unlink(new)
        raise


@click.command(
    "import",
    epilog="Examples:\n\n\b\n  acpmux import web.acpmux.gz\n  acpmux import web.acpmux.gz -n web-2 --cwd ~/src/web",
)
@click.argument("file", type=click.Path(allow_dash=True))
@click.option("-n", "--name", help="The session's name here (default: its own, or one like it).")
@click.option("--cwd", type=click.Path(), help="Its folder here (default: its own).")
@json_option
def import_command(file: str, name: str | None, cwd: str | None, as_json: bool) -> None:
    """Make a session of a bundle. It sleeps; nothing is started.

    It is started as this home's config says, with the MCP servers named there: a bundle brings no program to run.
    """
    with connect() as connection, _reading(file) as lines:
        first = next(lines, b"")
        connection.request(
            "_acpmux/import",
            {"session": _text(first, 1), "name": name, "cwd": cwd and os.path.abspath(cwd)},
            ANSWER_BUDGET_S,
        )
        page, size = list[str](), 0
        for number, line in enumerate(lines, 2):
            page.append(_text(line, number))
            size += len(line)
            if size > PAGE_BYTES:
                connection.request("_acpmux/import", {"records": page}, ANSWER_BUDGET_S)
                page, size = [], 0
        told = connection.request("_acpmux/import", {"records": page, "done": True}, ANSWER_BUDGET_S)
    if as_json:
        print_json(told)
        return
    click.echo(f"{told['name']} is there and sleeps. It wakes with the next prompt, or: acpmux wake {told['name']}")
    if told["servers"]:
        click.echo(f"note: its MCP servers did not come with it: {', '.join(told['servers'])}", err=True)


def _text(line: bytes, number: int) -> str:
    try:
        return line.rstrip(b"\n").decode("utf-8")
    except UnicodeDecodeError:
        raise UsageFault(f"line {number} is not UTF-8") from None


@contextmanager
def _reading(path: str) -> Generator[Iterator[bytes]]:
    """Lines of a plain or packed bundle. Raises: UsageFault naming the file."""
    with sys.stdin.buffer if path == "-" else open(path, "rb") as file:
        packed = cast(BufferedReader, file).peek(2)[:2] == b"\x1f\x8b"
        yield _bounded(cast(BinaryIO, gzip.GzipFile(fileobj=file)) if packed else file, path)


def _bounded(file: BinaryIO, path: str) -> Iterator[bytes]:
    number = 0
    try:
        while line := file.readline(LINE_BYTES + 1):
            number += 1
            if len(line) > LINE_BYTES:
                raise UsageFault(f"{path}: line {number} is over {LINE_BYTES} bytes")
            yield line
    except (OSError, EOFError) as error:
        raise UsageFault(f"{path} can't be unpacked: {error}") from None
