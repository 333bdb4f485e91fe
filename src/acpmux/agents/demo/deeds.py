"""Doing what a prompt asks for, one function a wish; each returns the reply, and tells what it does as it goes."""

import os
import socket
import subprocess
import sys
import threading
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from acpmux.agents.demo import words
from acpmux.agents.demo.memory import Conversation
from acpmux.agents.demo.peer import Peer
from acpmux.agents.demo.servers import McpServer, ServerFailed, wait_or_kill
from acpmux.untyped import as_object

HELP = (
    "I am the built-in demo agent; I have no model and understand a few words: 'my name is Ada', 'what is my name?', "
    "'remember the milk', 'what did I say?', 'what time is it?' (asks my MCP server), "
    "'write notes.txt' (asks you first), 'start a dev server on port 8000', 'stop the dev server', "
    "'count to 10', 'think'."
)
COUNT_PAUSE_S = 0.2  # slow enough to be watched and cancelled
COUNT_MOST = 1000
LISTEN_S = 5.0  # Python's own web server listens within a second, also on a loaded machine
LISTEN_PAUSE_S = 0.05
CONTEXT_SIZE = 100_000  # what the usage figures pretend to fill

OPTIONS = (
    {"optionId": "once", "name": "Yes, this once", "kind": "allow_once"},
    {"optionId": "always", "name": "Yes, always", "kind": "allow_always"},
    {"optionId": "no", "name": "No", "kind": "reject_once"},
)


@dataclass(slots=True)
class Session:
    """One open session. `busy` and `cancelled` belong to its turn; `may_write` is a permission given for good."""

    talk: Conversation
    mode: str
    model: str
    servers: list[McpServer] = field(default_factory=list[McpServer])
    dev_server: subprocess.Popen[bytes] | None = None
    may_write: bool = False
    busy: bool = False
    cancelled: threading.Event = field(default_factory=threading.Event)


class Deeds:
    """Carries out wishes in one session."""

    def __init__(self, peer: Peer, session: Session) -> None:
        self._peer = peer
        self._session = session

    def do(self, wish: words.Wish) -> str:
        """The reply; empty when the turn was cancelled."""
        match wish:
            case words.StartDevServer():
                return self._start_dev_server(wish.port)
            case words.StopDevServer():
                return self._stop_dev_server()
            case words.Count():
                return self._count(min(wish.limit, COUNT_MOST))
            case words.Write():
                return self._write(wish)
            case words.TellTime():
                return self._time()
            case words.Think():
                return self._think()
            case _:
                return reply_from_memory(wish, self._session.talk)

    # ------------------------------------------------------------ what it tells meanwhile

    def update(self, kind: str, /, **told: Any) -> None:
        params = {"sessionId": self._session.talk.session_id, "update": {"sessionUpdate": kind, **told}}
        self._peer.notify("session/update", params)

    def text(self, text: str, kind: str = "agent_message_chunk") -> None:
        self.update(kind, content={"type": "text", "text": text})

    def _call(self, title: str, kind: str, **more: Any) -> dict[str, Any]:
        """A tool call that begins; the result names it in later updates."""
        call = {"toolCallId": f"call-{uuid.uuid4().hex[:12]}", "title": title, "kind": kind, **more}
        self.update("tool_call", status="pending", **call)
        return call

    def _called(self, call: dict[str, Any], ok: bool, text: str) -> None:
        content = [{"type": "content", "content": {"type": "text", "text": text}}]
        status = "completed" if ok else "failed"
        self.update("tool_call_update", toolCallId=call["toolCallId"], status=status, content=content)

    # ------------------------------------------------------------ the dev server

    def _start_dev_server(self, port: int) -> str:
        """In an OS session of its own, as measured agents start every command; it outlives the turn."""
        session = self._session
        if not 1 <= port <= 65535:
            return f"There is no port {port}."
        if session.dev_server is not None and session.dev_server.poll() is None:
            return f"One runs already (pid {session.dev_server.pid}). Say: stop the dev server"
        if listens(port):
            return f"Port {port} is taken by somebody else."
        call = self._call(f"python3 -m http.server {port}", "execute")
        process = subprocess.Popen(
            [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1"],
            cwd=session.talk.cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        deadline = time.monotonic() + LISTEN_S
        while process.poll() is None and not listens(port) and time.monotonic() < deadline:
            time.sleep(LISTEN_PAUSE_S)
        if process.poll() is not None:
            self._called(call, False, f"it ended with {process.returncode}")
            return f"The dev server did not start: it ended with {process.returncode}."
        session.dev_server = process
        self._called(call, True, f"pid {process.pid}")
        return f"A dev server runs on http://127.0.0.1:{port} (pid {process.pid})."

    def _stop_dev_server(self) -> str:
        process, self._session.dev_server = self._session.dev_server, None
        if process is None or process.poll() is not None:
            return "No dev server of mine runs."
        process.terminate()
        wait_or_kill(process)
        return f"The dev server (pid {process.pid}) has ended."

    # ------------------------------------------------------------ the rest

    def _count(self, limit: int) -> str:
        for number in range(1, limit + 1):
            if self._session.cancelled.wait(COUNT_PAUSE_S):
                return ""
            self.text(f"{number} ")
        return "done"

    def _write(self, wish: words.Write) -> str:
        root = Path(self._session.talk.cwd).resolve()
        path = (root / wish.path).resolve()
        if not path.is_relative_to(root):
            return f"I only write inside {root}."
        if self._session.mode == "plan":
            return f"I am in plan mode: I would write {wish.path}."
        text = (wish.text or "written by the demo agent") + "\n"
        change = {"type": "diff", "path": str(path), "oldText": None, "newText": text}
        call = self._call(f"write {wish.path}", "edit", content=[change], rawInput={"path": str(path)})
        if not self._allowed(call):
            self._called(call, False, "not allowed")
            return f"I did not write {wish.path}."
        try:
            path.write_text(text, "utf-8")
        except OSError as error:
            self._called(call, False, error.strerror or "failed")
            return f"I could not write {wish.path}: {error.strerror}."
        self._called(call, True, "written")
        return f"I wrote {wish.path}."

    def _allowed(self, call: dict[str, Any]) -> bool:
        session = self._session
        if session.mode == "yolo" or session.may_write:
            return True
        params = {"sessionId": session.talk.session_id, "toolCall": call, "options": OPTIONS}
        outcome = as_object(self._peer.ask("session/request_permission", params).get("outcome"))
        chosen = outcome.get("optionId") if outcome.get("outcome") == "selected" else None
        session.may_write = chosen == "always"
        return chosen in ("once", "always") and not session.cancelled.is_set()

    def _time(self) -> str:
        server = next((one for one in self._session.servers if "clock" in one.tools), None)
        if server is None:
            return "I have no clock: none of my MCP servers offers one."
        call = self._call(f"{server.name}: clock", "other")
        try:
            told = server.call_tool("clock", {})
        except ServerFailed as error:
            self._called(call, False, str(error))
            return f"I don't know: {error}."
        self._called(call, True, told)
        return f"My MCP server says it is {told}."

    def _think(self) -> str:
        self.text("Let me see what there is.", "agent_thought_chunk")
        steps = ("look", "think", "answer")
        for done in range(len(steps) + 1):
            entries = [
                {"content": step, "priority": "medium", "status": "completed" if at < done else "pending"}
                for at, step in enumerate(steps)
            ]
            self.update("plan", entries=entries)
        call = self._call("look around", "read")
        self.update("tool_call_update", toolCallId=call["toolCallId"], status="in_progress")
        self._called(call, True, f"{len(os.listdir(self._session.talk.cwd))} entries")
        return "I have thought about it."


def reply_from_memory(wish: words.Wish, talk: Conversation) -> str:
    """The replies that need nothing but what was said so far, the present prompt included."""
    match wish:
        case words.Greet():
            return f"Hello {wish.name}, I will remember that."
        case words.Remember():
            return "I will remember that."
        case words.TellName():
            name = next((name for text in reversed(talk.user_said()) if (name := words.name_in(text))), None)
            return f"Your name is {name}." if name else "You have not told me."
        case words.Recall():
            before = talk.user_said()[:-1]
            return "You said: " + " | ".join(before) if before else "You have said nothing yet."
        case words.Echo():
            return f"echo: {wish.text}"
        case _:
            return HELP


def listens(port: int) -> bool:
    """True when somebody accepts connections on this port of the loopback."""
    with socket.socket() as probe:
        probe.settimeout(LISTEN_S)
        return probe.connect_ex(("127.0.0.1", port)) == 0
