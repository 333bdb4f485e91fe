"""Who waits for what: tokens of client requests, and the prompts they joined."""

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass

from acpmux.errors import AcpmuxError, Internal, by_code
from acpmux.model.ids import PromptId, Seq
from acpmux.model.record import Kind, Stored
from acpmux.rules.fold import raw_tail
from acpmux.rules.messages import Done, Reject, Reply
from acpmux.untyped import parse_json


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one prompt ended.

    `payload` is the harness's raw result when `ok`, else an error object {code, message, error}.
    """

    prompt_id: PromptId
    first_seq: Seq
    last_seq: Seq
    ok: bool
    payload: bytes
    stop_reason: str
    asked: int
    denied: int


Answer = Done | Reply | Outcome


class Answers:
    """Every request of a client that an actor has not answered yet; each is answered once."""

    def __init__(self) -> None:
        self._last = 0
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._joined: dict[PromptId, list[int]] = {}

    def open(self) -> tuple[int, asyncio.Future[Answer]]:
        self._last += 1
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[self._last] = future
        return self._last, future

    def forget(self, token: int) -> None:
        """The client is gone; a late answer to it is dropped."""
        self._waiting.pop(token, None)

    def join(self, token: int, prompt_id: PromptId) -> None:
        self._joined.setdefault(prompt_id, []).append(token)

    def give(self, token: int, answer: Answer) -> None:
        future = self._waiting.pop(token, None)
        if future is not None and not future.done():
            future.set_result(answer)

    def fail(self, token: int, error: AcpmuxError) -> None:
        future = self._waiting.pop(token, None)
        if future is not None and not future.done():
            future.set_exception(error)

    def resolve(self, outcome: Outcome) -> None:
        for token in self._joined.pop(outcome.prompt_id, ()):
            self.give(token, outcome)

    def fail_joined(self, error: AcpmuxError) -> None:
        """Whoever waits for a prompt is told why it does not run; the prompt itself is kept."""
        for tokens in self._joined.values():
            for token in tokens:
                self.fail(token, error)
        self._joined.clear()

    def fail_all(self, error: AcpmuxError) -> None:
        """There is nobody any more who could answer."""
        for token in tuple(self._waiting):
            self.fail(token, error)
        self._joined.clear()


def error_of(reject: Reject, session_id: str) -> AcpmuxError:
    """The error a Reject stands for, with its blockers as `blockers`."""
    kind = by_code().get(reject.code, Internal)
    error = kind(reject.message, session_id=session_id)
    error.blockers = [{"pid": pid, "command": command, "why": why} for pid, command, why in reject.blockers]
    return error


def outcome_of(rows: Iterable[Stored], started: Seq | None = None) -> Outcome | None:
    """The outcome that the records of one prompt tell, None while there is none.

    `started` is the seq of its turn's start where that is not among them.
    """
    first = started or Seq(0)
    for seq, record in ((row.seq, row.record) for row in rows):
        if record.kind is Kind.TURN_STARTED:
            first = seq
        if record.kind in (Kind.TURN_ENDED, Kind.TURN_FAILED):
            return _outcome(first or seq, seq, record.kind is Kind.TURN_ENDED, record.body)
    return None


def _outcome(first: Seq, last: Seq, ok: bool, body: bytes) -> Outcome:
    told = parse_json(body)
    if ok:
        payload = raw_tail("result", body)
    else:
        payload = json.dumps({key: told[key] for key in ("code", "message", "error")}).encode()
    return Outcome(
        PromptId(told["promptId"]),
        first,
        last,
        ok,
        payload,
        told.get("stopReason", ""),
        told["asked"],
        told["denied"],
    )
