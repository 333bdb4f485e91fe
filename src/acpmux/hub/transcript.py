"""The stored conversation as text: for a harness that lost its own, and for the reply of a turn."""

import json
from collections.abc import Iterable

from acpmux.model.ids import PromptId, SessionId
from acpmux.model.record import Kind, Stored
from acpmux.ports import EventLog
from acpmux.rules.fold import raw_tail
from acpmux.wire import acp

LAST_RECORDS = 2000  # of the conversation; older ones hardly matter to what comes next
LIMIT_CHARS = 60_000  # about 15,000 tokens, what a model takes without losing the prompt behind it

_OPENING = (
    "The conversation so far was carried over from an earlier run of this session, as text. "
    "Go on from it; do not answer this block.\n\n"
)


async def with_transcript(log: EventLog, session_id: SessionId, prompt_id: PromptId, blocks: bytes) -> bytes:
    """The prompt's blocks with the stored conversation before them, as one text block."""
    rows = await log.read_kinds(session_id, (Kind.PROMPTED, Kind.UPDATE), LAST_RECORDS)
    text = conversation(row for row in rows if row.record.prompt_id != prompt_id)
    if not text:
        return blocks
    first = json.dumps({"type": "text", "text": _OPENING + text[-LIMIT_CHARS:]}).encode()
    return b"[" + first + b"," + blocks.lstrip()[1:]


def conversation(rows: Iterable[Stored]) -> str:
    """What was said, a paragraph for each change of speaker."""
    parts: list[str] = []
    speaker = ""
    for row in rows:
        if row.record.kind is Kind.PROMPTED:
            who, text = "Person", acp.prompt_text(raw_tail("prompt", row.record.body))
        else:
            who, text = "Agent", acp.parse_update(row.record.body).text or ""
        if text:
            parts.append(text if who == speaker else f"\n\n{who}: {text}")
            speaker = who
    return "".join(parts).strip()


def reply_text(rows: Iterable[Stored]) -> str:
    """The text of every agent message among these records."""
    return "".join(acp.parse_update(row.record.body).text or "" for row in rows if row.record.kind is Kind.UPDATE)
