"""What a prompt asks the demo agent for: plain words to one wish (pure)."""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StartDevServer:
    port: int


@dataclass(frozen=True, slots=True)
class StopDevServer:
    pass


@dataclass(frozen=True, slots=True)
class Count:
    limit: int


@dataclass(frozen=True, slots=True)
class Write:
    """A file to write; without `text` it gets a line of the agent's own."""

    path: str
    text: str | None


@dataclass(frozen=True, slots=True)
class TellTime:
    pass


@dataclass(frozen=True, slots=True)
class Think:
    pass


@dataclass(frozen=True, slots=True)
class TellName:
    pass


@dataclass(frozen=True, slots=True)
class Recall:
    pass


@dataclass(frozen=True, slots=True)
class Greet:
    name: str


@dataclass(frozen=True, slots=True)
class Remember:
    what: str


@dataclass(frozen=True, slots=True)
class Help:
    pass


@dataclass(frozen=True, slots=True)
class Echo:
    text: str


Wish = (
    StartDevServer
    | StopDevServer
    | Count
    | Write
    | TellTime
    | Think
    | TellName
    | Recall
    | Greet
    | Remember
    | Help
    | Echo
)

_NAME = re.compile(r"\bmy name is (\w+)", re.IGNORECASE)
_REMEMBER = re.compile(r"\bremember(?: that)? (.+)", re.IGNORECASE | re.DOTALL)
_PORT = re.compile(r"\bdev server on port (\d{1,9})\b")
_COUNT = re.compile(r"\bcount to (\d{1,9})\b")
_WRITE = re.compile(r"write (?:the file )?(\S+?)(?:: *(.+))?\Z", re.IGNORECASE | re.DOTALL)


def understand(text: str) -> Wish:
    """The wish behind a prompt. Whatever is not understood is echoed."""
    said = text.strip()
    lowered = said.lower()
    if found := _PORT.search(lowered):
        return StartDevServer(int(found[1]))
    if "stop the dev server" in lowered:
        return StopDevServer()
    if found := _COUNT.search(lowered):
        return Count(int(found[1]))
    if found := _WRITE.match(said):
        return Write(found[1], found[2])
    return _question(lowered) or _statement(said) or Echo(said)


def name_in(text: str) -> str | None:
    """The name that somebody gives as their own."""
    found = _NAME.search(text)
    return found[1] if found else None


def _question(lowered: str) -> Wish | None:
    if lowered == "/time" or "what time is it" in lowered:
        return TellTime()
    if lowered in ("think", "/think"):
        return Think()
    if "what is my name" in lowered or "what's my name" in lowered or "who am i" in lowered:
        return TellName()
    if "what did i say" in lowered or "what do you remember" in lowered:
        return Recall()
    return Help() if lowered in ("help", "/help", "hi", "hello") else None


def _statement(said: str) -> Wish | None:
    if name := name_in(said):
        return Greet(name)
    found = _REMEMBER.search(said)
    return Remember(found[1].strip()) if found else None
