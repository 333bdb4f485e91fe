"""The frames between a daemon and an agent host: eight bytes of lengths, a JSON header, a raw body.

Standard library only (the host imports it). A body is a harness's line, byte for byte. Version 1 of the protocol:

daemon to host, each header's `t`:

- `hello` {token, versions: [low, high], after}: first frame; a wrong token ends the link. Output after host seq
`after` follows.
- `in` {n, key} + body -> `got` {n}: line n for the harness, without its newline; n goes on from the welcome's `taken`.
  A line with a key that was seen is dropped: a daemon that can't know what an earlier one has sent sends it again.
- `ack` {n}: output up to host seq n is stored; drop it. So much may be in flight and no more (`host/core.py`).
- `core` {id} -> `core_marked` {id, core: [[pid, start]]}: list what is there now (MarkCore).
- `take` {id, session, cwd, servers, direct} -> `taken` {id, launch}: a host that was kept ready is this session's from
  now on; it reads which servers the launch names, and a direct one ends with the link.
- `settle` {id, quiet_ms, budget_ms} -> `settled` {id, seen, missing, waited_ms}: wait until each marked server is
seen and
  its subtree has not changed for quiet_ms.
- `retire` {id, after, grace_ms, park} -> `retired` {id, ended, left, freed_bytes, took_ms} or
  `refused` {id, kind, reason, retry, blockers}.
- `retire_cancel` {}: the session is used again; before the first signal it cancels, after it the grace is cut to
300 ms.
- `end` {id, all} -> `ended` {id, ended, left}: row 6 of SPEC section 6, no census.
- `census` {id} -> `census` {id, whole, unknown, blockers, processes, more}.
- `bye` {}: the host may exit, all is told.

host to daemon besides those answers:

- `welcome` {version, host_pid, pid, start, launch {problems, places, servers}, state, outcome, taken}: the answer to
  `hello`. `taken` is the number of the last line for the harness that the host has got.
  `state` is running, retiring, retired, ended or exited; `outcome` is the header of the answer that tells of it.
- `out` {n} + body: one line of the harness. `n` has no gaps.
- after a `welcome` whose outcome is there: that outcome once more as a frame of its own, behind every `out`.
- `exited` {code, signal, n, ended, left, stderr}: the harness exited on its own; n is its last line.
  Sent only after every `out`.

- `freed` {}: everybody whom the last refusal named has ended.
- `failed` {id, reason}: in place of an answer that is over a frame's limit.

`ended` and `left` are lists of [pid, start, command, how]; `how` is term, kill, gone or left. `blockers` are [pid,
start, command, why].
Refusal kinds: output, unwritten, cancelled, unstopped, held, unknown, busy.
A process of `census` is {pid, ppid, pgid, argv, cut, verdict, server, rssBytes, startedAtMs}, argv as text, `cut` when
it is not all of it. `more` counts the processes that are not told. At most a thousand blockers are.
"""

import json
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

VERSION = 1
MAX_HEADER_BYTES = 8 * 1024 * 1024  # a census of thousands of processes with long command lines
MAX_BODY_BYTES = 64 * 1024 * 1024  # one line of a harness; the same figure bounds every line reader
_LENGTHS = struct.Struct("!II")


class FrameError(Exception):
    """The other side of a host link sent what is no frame; the link cannot go on."""


class FrameTooBig(Exception):
    """A frame that the other side would not take: nothing of it is sent, so the link goes on."""


class Frame(NamedTuple):
    """One frame: `kind` is the header's `t`."""

    kind: str
    header: dict[str, Any]
    body: bytes = b""


def encode(kind: str, body: bytes = b"", /, **header: Any) -> bytes:
    """The bytes of one frame. Raises: FrameTooBig."""
    head = json.dumps({"t": kind, **header}, separators=(",", ":")).encode()
    if len(head) > MAX_HEADER_BYTES or len(body) > MAX_BODY_BYTES:
        raise FrameTooBig(f"{kind} of {len(head)}+{len(body)} bytes is over the limit")
    return _LENGTHS.pack(len(head), len(body)) + head + body


class FrameReader:
    """Cuts bytes as they arrive into frames; any split of the input gives the same frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Every frame that `data` completes. Raises: FrameError for lengths over the limits or a bad header."""
        self._buffer += data
        while len(self._buffer) >= _LENGTHS.size:
            head_size, body_size = _LENGTHS.unpack_from(self._buffer)
            if head_size > MAX_HEADER_BYTES or body_size > MAX_BODY_BYTES:
                raise FrameError(f"frame of {head_size}+{body_size} bytes is over the limit")
            end = _LENGTHS.size + head_size + body_size
            if len(self._buffer) < end:
                return
            head_end = _LENGTHS.size + head_size
            frame = _parse(bytes(self._buffer[_LENGTHS.size : head_end]), bytes(self._buffer[head_end:end]))
            del self._buffer[:end]
            yield frame


def _parse(head: bytes, body: bytes) -> Frame:
    try:
        header = json.loads(head)
        kind = header.pop("t")
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise FrameError(f"frame header is not an object with a kind: {error}") from None
    if not isinstance(kind, str):
        raise FrameError("frame kind is not a text")
    return Frame(kind, header, body)
