"""The ACP methods of the demo agent: sessions that are made, resumed, loaded, set and prompted."""

import os
import sys
import threading
from typing import Any

from acpmux.agents.demo import peer as rpc
from acpmux.agents.demo import servers
from acpmux.agents.demo.deeds import CONTEXT_SIZE, Deeds, Session
from acpmux.agents.demo.memory import Conversation, Memory, new_id
from acpmux.agents.demo.peer import Peer, RpcError
from acpmux.agents.demo.servers import McpServer, ServerFailed
from acpmux.agents.demo.words import understand
from acpmux.untyped import as_list, as_object, as_text

PROTOCOL_VERSION = 1
MODES = {
    "default": "asks before it writes",
    "plan": "only says what it would do",
    "yolo": "writes without asking",
}
MODELS = {"small": "Small", "large": "Large"}
COMMANDS = {
    "time": "The time, from an MCP server.",
    "think": "Thoughts, a plan and a tool call.",
    "help": "What I understand.",
}


class Agent:
    """Every session of this process. Requests that may take long come on threads of their own, one turn a session."""

    def __init__(self, peer: Peer, memory: Memory) -> None:
        self._peer = peer
        self._memory = memory
        self._lock = threading.Lock()
        self._sessions: dict[str, Session] = {}
        self._methods = {
            "initialize": self._initialize,
            "session/new": self._new,
            "session/resume": self._resume,
            "session/load": self._load,
            "session/list": self._list,
            "session/close": self._close,
            "session/set_mode": self._set_mode,
            "session/set_config_option": self._set_option,
            "session/prompt": self._prompt,
        }

    # ------------------------------------------------------------ what the peer calls

    def is_slow(self, method: str) -> bool:
        return method in ("session/new", "session/resume", "session/load", "session/close", "session/prompt")

    def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        known = self._methods.get(method)
        if known is None:
            raise RpcError(rpc.METHOD_NOT_FOUND, f"no method {method[:100]!r}")
        return known(params)

    def notification(self, method: str, params: dict[str, Any]) -> None:
        session = self._sessions.get(as_text(params.get("sessionId")) or "")
        if method == "session/cancel" and session is not None:
            session.cancelled.set()

    def answered(self, method: str, params: dict[str, Any], result: Any) -> None:
        """Commands are told right after a session stands, outside any turn, as measured agents do."""
        if method in ("session/new", "session/resume", "session/load"):
            session_id = as_text(as_object(result).get("sessionId")) or as_text(params.get("sessionId"))
            session = self._sessions.get(session_id or "")
            if session is not None:
                commands = [{"name": name, "description": told} for name, told in COMMANDS.items()]
                Deeds(self._peer, session).update("available_commands_update", availableCommands=commands)

    def close(self) -> None:
        """Ends every MCP server. A dev server is the user's and stays."""
        with self._lock:
            going = [server for session in self._sessions.values() for server in session.servers]
        servers.end(going)

    # ------------------------------------------------------------ methods

    def _initialize(self, params: dict[str, Any]) -> dict[str, Any]:
        offered: dict[str, Any] = {
            "loadSession": True,
            "promptCapabilities": {"image": False, "audio": False, "embeddedContext": False},
            "mcpCapabilities": {"http": False, "sse": False},
            "sessionCapabilities": {"resume": {}, "list": {}, "close": {}},
        }
        info = {"name": "acpmux-demo-agent", "title": "Demo agent", "version": "1"}
        return {
            "protocolVersion": PROTOCOL_VERSION,
            "agentCapabilities": offered,
            "authMethods": [],
            "agentInfo": info,
        }

    def _new(self, params: dict[str, Any]) -> dict[str, Any]:
        session = self._open(Conversation(new_id(), _folder(params)), params)
        return {"sessionId": session.talk.session_id, **_settings(session)}

    def _resume(self, params: dict[str, Any]) -> dict[str, Any]:
        return _settings(self._known(params))

    def _load(self, params: dict[str, Any]) -> dict[str, Any]:
        """Tells the whole conversation before it answers."""
        session = self._known(params)
        deeds = Deeds(self._peer, session)
        for who, text in session.talk.said:
            deeds.text(text, "user_message_chunk" if who == "user" else "agent_message_chunk")
        return _settings(session)

    def _known(self, params: dict[str, Any]) -> Session:
        """The stored session, open, in the default mode and with the default model. Raises: RpcError."""
        session_id, cwd = _session_id(params), _folder(params)
        talk = self._memory.load(session_id)
        if talk is None:
            raise RpcError(rpc.NOT_FOUND, f"no session {session_id[:100]!r}")
        talk.cwd = cwd
        return self._open(talk, params)

    def _open(self, talk: Conversation, params: dict[str, Any]) -> Session:
        session = Session(talk, next(iter(MODES)), next(iter(MODELS)))
        with self._lock:
            before = self._sessions.get(talk.session_id)
            if before is not None and before.busy:
                raise RpcError(rpc.INVALID_REQUEST, "a turn of this session is running")
            self._sessions[talk.session_id] = session
        if before is not None:
            session.dev_server = before.dev_server
            servers.end(before.servers)
        for told in as_list(params.get("mcpServers")):
            try:
                session.servers.append(McpServer(as_object(told), talk.cwd))
            except ServerFailed as error:
                print(f"demo agent: MCP server left out: {error}", file=sys.stderr, flush=True)
        return session

    def _list(self, params: dict[str, Any]) -> dict[str, Any]:
        cwd = as_text(params.get("cwd"))
        told = [
            {"sessionId": talk.session_id, "cwd": talk.cwd, "title": talk.title, "updatedAt": talk.updated_at}
            for talk in self._memory.all()
            if cwd is None or talk.cwd == cwd
        ]
        return {"sessions": told}

    def _close(self, params: dict[str, Any]) -> dict[str, Any]:
        session = self._session(params)
        session.cancelled.set()
        with self._lock:
            self._sessions.pop(session.talk.session_id, None)
        servers.end(session.servers)
        return {}

    def _set_mode(self, params: dict[str, Any]) -> dict[str, Any]:
        session, mode = self._session(params), as_text(params.get("modeId"))
        if mode not in MODES:
            raise RpcError(rpc.INVALID_PARAMS, f"no mode {str(mode)[:100]!r}; there are {', '.join(MODES)}")
        session.mode = mode
        Deeds(self._peer, session).update("current_mode_update", currentModeId=mode)
        return {}

    def _set_option(self, params: dict[str, Any]) -> dict[str, Any]:
        session, value = self._session(params), as_text(params.get("value"))
        if params.get("configId") != "model" or value not in MODELS:
            raise RpcError(rpc.INVALID_PARAMS, f"the one option is 'model': {' or '.join(MODELS)}")
        session.model = value
        return {"configOptions": _settings(session)["configOptions"]}

    def _prompt(self, params: dict[str, Any]) -> dict[str, Any]:
        session = self._session(params)
        texts = [as_text(as_object(block).get("text")) for block in as_list(params.get("prompt"))]
        said = "\n".join(text for text in texts if text is not None).strip()
        with self._lock:
            if session.busy:
                raise RpcError(rpc.INVALID_REQUEST, "a turn of this session is running")
            session.busy = True
            session.cancelled.clear()
        try:
            self._turn(session, said)
        finally:
            session.busy = False
        return {"stopReason": "cancelled" if session.cancelled.is_set() else "end_turn"}

    def _turn(self, session: Session, said: str) -> None:
        talk, deeds = session.talk, Deeds(self._peer, session)
        first = not talk.said
        talk.said.append(("user", said))
        self._memory.save(talk)  # what was asked is kept also if the turn never ends
        if first:
            deeds.update("session_info_update", title=talk.title)
        reply = deeds.do(understand(said))
        if reply:
            deeds.text(reply)
            talk.said.append(("agent", reply))
            self._memory.save(talk)
        deeds.update("usage_update", used=sum(len(text) for _, text in talk.said), size=CONTEXT_SIZE)

    def _session(self, params: dict[str, Any]) -> Session:
        session_id = _session_id(params)
        session = self._sessions.get(session_id)
        if session is None:
            raise RpcError(rpc.NOT_FOUND, f"no session {session_id[:100]!r} is open")
        return session


def _session_id(params: dict[str, Any]) -> str:
    session_id = as_text(params.get("sessionId"))
    if session_id is None:
        raise RpcError(rpc.INVALID_PARAMS, "sessionId is missing")
    return session_id


def _folder(params: dict[str, Any]) -> str:
    cwd = as_text(params.get("cwd"))
    if cwd is None or not os.path.isabs(cwd) or not os.path.isdir(cwd):
        raise RpcError(rpc.INVALID_PARAMS, "cwd must be the absolute path of a folder")
    return cwd


def _settings(session: Session) -> dict[str, Any]:
    modes = [{"id": mode, "name": mode.title(), "description": told} for mode, told in MODES.items()]
    model = {
        "id": "model",
        "name": "Model",
        "category": "model",
        "type": "select",
        "currentValue": session.model,
        "options": [{"value": value, "name": name} for value, name in MODELS.items()],
    }
    return {"modes": {"currentModeId": session.mode, "availableModes": modes}, "configOptions": [model]}
