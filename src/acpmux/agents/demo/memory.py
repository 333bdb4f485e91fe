"""Conversations on disk: what was said outlives the process. One JSON file each, replaced whole."""

import json
import os
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from acpmux.untyped import as_list, as_object, as_text

TITLE_CHARS = 60


@dataclass(slots=True)
class Conversation:
    """`said` is who ("user" or "agent") and what, in order; `updated_at` is RFC 3339 in UTC."""

    session_id: str
    cwd: str
    said: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    updated_at: str = ""

    @property
    def title(self) -> str:
        """The first words of the user."""
        return next((text for who, text in self.said if who == "user"), "")[:TITLE_CHARS]

    def user_said(self) -> list[str]:
        return [text for who, text in self.said if who == "user"]


class Memory:
    """The folder of conversations. Nothing is written before the first prompt, as with measured agents."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def save(self, conversation: Conversation) -> None:
        conversation.updated_at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        told = {"cwd": conversation.cwd, "said": conversation.said, "updatedAt": conversation.updated_at}
        path = self._folder / f"{conversation.session_id}.json"
        new = path.with_suffix(".new")
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            json.dump(told, file)
        new.replace(path)

    def load(self, session_id: str) -> Conversation | None:
        """The conversation of this id, None when there is none, when its file is broken, or when it can't be an id."""
        if not _is_id(session_id):
            return None
        try:
            told = as_object(json.loads((self._folder / f"{session_id}.json").read_text("utf-8")))
        except (OSError, ValueError):
            return None
        pairs = [as_list(pair) for pair in as_list(told.get("said"))]
        said = [_line(pair) for pair in pairs if len(pair) == 2]
        return Conversation(session_id, as_text(told.get("cwd")) or "/", said, as_text(told.get("updatedAt")) or "")

    def all(self) -> list[Conversation]:
        """Every conversation, the latest first."""
        found = [self.load(path.stem) for path in self._folder.glob("*.json")]
        return sorted((one for one in found if one is not None), key=lambda one: one.updated_at, reverse=True)


def new_id() -> str:
    return str(uuid.uuid4())


def _is_id(text: str) -> bool:
    """True for an id of ours; anything else could name a file elsewhere."""
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False


def _line(pair: list[Any]) -> tuple[str, str]:
    return str(pair[0]), str(pair[1])
