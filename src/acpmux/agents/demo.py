"""The built-in demo agent: a real ACP program without a model. `python -m acpmux.agents.demo`.

It behaves as measured agents do where it matters: it starts the MCP servers it is given, runs commands in sessions of their own, keeps its
conversation on disk, can't load a session that was never prompted, and comes back from a load in its default mode.
"""

import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import uuid
from pathlib import Path
from typing import Any

MODES = ("default", "plan", "careful")
HELP = (
    "I am the built-in demo agent. Try: 'my name is Ada', 'what is my name?', 'what time is it', "
    "'start a dev server on port 8000', 'stop the dev server', 'write notes.txt', 'count to 5'."
)


class McpServer:
    """One MCP server under this agent, spoken to over its pipes."""

    def __init__(self, told: dict[str, Any], cwd: str) -> None:
        env = dict(os.environ) | {item["name"]: item["value"] for item in told.get("env", ())}
        self.process = subprocess.Popen(
            [told["command"], *told.get("args", ())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=env,
            cwd=cwd,
            text=True,
        )
        self._last = 0
        info = {"name": "demo", "version": "1"}
        self.call("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info})
        self.tools = [tool["name"] for tool in self.call("tools/list", {}).get("tools", ())]

    def call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """One request and its result; empty when the server is gone or answers an error."""
        self._last += 1
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            request = {"jsonrpc": "2.0", "id": self._last, "method": method, "params": params}
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            while line := self.process.stdout.readline():
                told = json.loads(line)
                if told.get("id") == self._last:
                    return told.get("result") or {}
        except (OSError, ValueError):
            pass
        return {}


class Agent:
    """One session at a time is all a harness of acpmux holds; more are served the same way."""

    def __init__(self) -> None:
        self.home = Path(os.environ.get("ACPMUX_DEMO_HOME") or _default_home())
        self.servers: dict[str, list[McpServer]] = {}
        self.sessions: dict[str, dict[str, Any]] = {}
        self.dev_server: subprocess.Popen[bytes] | None = None
        self.cancelled = threading.Event()
        self._answers: dict[int, queue.Queue[dict[str, Any]]] = {}
        self._asked = 0
        self._out = threading.Lock()

    # ------------------------------------------------------------ the wire

    def say(self, told: dict[str, Any]) -> None:
        with self._out:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", **told}) + "\n")
            sys.stdout.flush()

    def update(self, session_id: str, **update: Any) -> None:
        self.say({"method": "session/update", "params": {"sessionId": session_id, "update": update}})

    def text(self, session_id: str, text: str, kind: str = "agent_message_chunk") -> None:
        self.update(session_id, sessionUpdate=kind, content={"type": "text", "text": text})

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """A request to the client, and its result."""
        self._asked += 1
        waiting = self._answers[self._asked] = queue.Queue()
        self.say({"id": self._asked, "method": method, "params": params})
        return waiting.get().get("result") or {}

    def serve(self) -> None:
        for line in sys.stdin:
            told = json.loads(line)
            if "method" not in told:
                self._answers.pop(told["id"]).put(told)
            elif told["method"] == "session/cancel":
                self.cancelled.set()
            elif "id" in told:
                threading.Thread(target=self._handle, args=(told,), daemon=True).start()

    def _handle(self, told: dict[str, Any]) -> None:
        name = told["method"].replace("/", "_").replace("session_", "")
        method = getattr(self, f"on_{name}", None)
        if method is None:
            self.say({"id": told["id"], "error": {"code": -32601, "message": f"no method {told['method']}"}})
            return
        try:
            self.say({"id": told["id"], "result": method(told.get("params") or {})})
        except LookupError as error:
            self.say({"id": told["id"], "error": {"code": -32002, "message": str(error)}})

    # ------------------------------------------------------------ methods

    def on_initialize(self, params: dict[str, Any]) -> dict[str, Any]:
        sessions: dict[str, Any] = {"resume": {}, "list": {}}
        offered = {"loadSession": True, "sessionCapabilities": sessions, "promptCapabilities": {"embeddedContext": True}}
        info = {"name": "acpmux-demo", "version": "1"}
        return {"protocolVersion": 1, "agentCapabilities": offered, "authMethods": [], "agentInfo": info}

    def on_new(self, params: dict[str, Any]) -> dict[str, Any]:
        session_id = str(uuid.uuid4())
        self.sessions[session_id] = {"said": [], "cwd": params["cwd"]}
        self._start_servers(session_id, params)
        return {"sessionId": session_id, **self._state()}

    def on_resume(self, params: dict[str, Any]) -> dict[str, Any]:
        session_id = params["sessionId"]
        path = self._file(session_id)
        if not path.exists():
            raise LookupError(f"no session {session_id}")
        self.sessions[session_id] = json.loads(path.read_text())
        self._start_servers(session_id, params)
        return self._state()

    def on_load(self, params: dict[str, Any]) -> dict[str, Any]:
        state = self.on_resume(params)
        for who, text in self.sessions[params["sessionId"]]["said"]:
            self.text(params["sessionId"], text, f"{who}_message_chunk")
        return state

    def on_list(self, params: dict[str, Any]) -> dict[str, Any]:
        return {"sessions": [{"sessionId": path.stem, "cwd": "/"} for path in sorted(self.home.glob("*.json"))]}

    def on_set_mode(self, params: dict[str, Any]) -> dict[str, Any]:
        if params["modeId"] not in MODES:
            raise LookupError(f"no mode {params['modeId']}")
        self.update(params["sessionId"], sessionUpdate="current_mode_update", currentModeId=params["modeId"])
        return {}

    def on_prompt(self, params: dict[str, Any]) -> dict[str, Any]:
        session_id = params["sessionId"]
        session = self.sessions.get(session_id)
        if session is None:
            raise LookupError(f"no session {session_id}")
        said = " ".join(block.get("text", "") for block in params["prompt"]).strip()
        self.cancelled.clear()
        session["said"].append(["user", said])
        reply = self._reply(session_id, session, said)
        if reply:
            self.text(session_id, reply)
            session["said"].append(["agent", reply])
        self.home.mkdir(parents=True, exist_ok=True)
        self._file(session_id).write_text(json.dumps(session))
        self.update(session_id, sessionUpdate="usage_update", used=sum(len(text) for _, text in session["said"]), size=100000)
        return {"stopReason": "cancelled" if self.cancelled.is_set() else "end_turn"}

    # ------------------------------------------------------------ what it understands

    def _reply(self, session_id: str, session: dict[str, Any], said: str) -> str:
        lowered = said.lower()
        if found := re.search(r"dev server on port (\d+)", lowered):
            return self._start_dev_server(session_id, int(found[1]), session["cwd"])
        if "stop the dev server" in lowered:
            return self._stop_dev_server()
        if found := re.search(r"count to (\d+)", lowered):
            return self._count(session_id, min(int(found[1]), 1000))
        if found := re.match(r"write (\S+)", said):
            return self._write(session_id, Path(session["cwd"]) / found[1])
        if "time is it" in lowered or lowered == "/time":
            return self._time(session_id)
        if lowered == "think":
            return self._think(session_id)
        if "what is my name" in lowered or "who am i" in lowered:
            return self._name(session)
        if found := re.search(r"my name is (\w+)", said, re.IGNORECASE):
            return f"Hello {found[1]}, I will remember that."
        if "what did i say" in lowered:
            before = [text for who, text in session["said"][:-1] if who == "user"]
            return "You said: " + " | ".join(before) if before else "Nothing yet."
        return HELP if lowered in ("help", "hi", "hello") else f"echo: {said}"

    def _name(self, session: dict[str, Any]) -> str:
        for who, text in reversed(session["said"]):
            found = re.search(r"my name is (\w+)", text, re.IGNORECASE)
            if who == "user" and found:
                return f"Your name is {found[1]}."
        return "You have not told me."

    def _start_dev_server(self, session_id: str, port: int, cwd: str) -> str:
        """A session of its own, as real agents give every command they run."""
        command = [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1"]
        self.update(
            session_id,
            sessionUpdate="tool_call",
            toolCallId=f"call-{port}",
            title=f"python -m http.server {port}",
            kind="execute",
            status="completed",
        )
        self.dev_server = subprocess.Popen(
            command,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        return f"A dev server runs on http://127.0.0.1:{port} (pid {self.dev_server.pid})."

    def _stop_dev_server(self) -> str:
        if self.dev_server is None:
            return "There is none."
        self.dev_server.terminate()
        self.dev_server.wait()
        pid, self.dev_server = self.dev_server.pid, None
        return f"The dev server (pid {pid}) has ended."

    def _count(self, session_id: str, limit: int) -> str:
        for number in range(1, limit + 1):
            if self.cancelled.wait(0.2):
                return ""
            self.text(session_id, f"{number} ")
        return "done"

    def _write(self, session_id: str, path: Path) -> str:
        call = {"toolCallId": f"call-{uuid.uuid4().hex[:8]}", "title": f"write {path.name}", "kind": "edit"}
        self.update(session_id, sessionUpdate="tool_call", status="pending", **call)
        options = [
            {"optionId": "once", "name": "Yes, once", "kind": "allow_once"},
            {"optionId": "always", "name": "Always", "kind": "allow_always"},
            {"optionId": "no", "name": "No", "kind": "reject_once"},
        ]
        asked = {"sessionId": session_id, "toolCall": {**call, "rawInput": {"path": str(path)}}, "options": options}
        outcome = self.ask("session/request_permission", asked).get("outcome", {})
        allowed = outcome.get("optionId") in ("once", "always")
        if allowed:
            path.write_text("written by the demo agent\n")
        status = "completed" if allowed else "failed"
        self.update(session_id, sessionUpdate="tool_call_update", toolCallId=call["toolCallId"], status=status)
        return f"I wrote {path.name}." if allowed else f"I did not write {path.name}."

    def _time(self, session_id: str) -> str:
        for server in self.servers.get(session_id, ()):
            if "clock" in server.tools:
                told = server.call("tools/call", {"name": "clock", "arguments": {}})
                return f"My MCP server says it is {told['content'][0]['text']}."
        return "I have no clock."

    def _think(self, session_id: str) -> str:
        self.text(session_id, "Let me see.", "agent_thought_chunk")
        entries = [{"content": "look", "priority": "medium", "status": "completed"}]
        self.update(session_id, sessionUpdate="plan", entries=entries)
        return "I have thought about it."

    # ------------------------------------------------------------ the rest

    def _start_servers(self, session_id: str, params: dict[str, Any]) -> None:
        started = self.servers.setdefault(session_id, [])
        for told in params.get("mcpServers") or ():
            started.append(McpServer(told, params["cwd"]))

    def _state(self) -> dict[str, Any]:
        modes = [{"id": mode, "name": mode.title()} for mode in MODES]
        return {"modes": {"currentModeId": MODES[0], "availableModes": modes}}

    def _file(self, session_id: str) -> Path:
        return self.home / f"{uuid.UUID(session_id)}.json"

    def end(self, *_: Any) -> None:
        """Its servers end with it; a dev server does not."""
        for servers in self.servers.values():
            for server in servers:
                server.process.terminate()
        os._exit(0)


def _default_home() -> str:
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.path.join(state, "acpmux-demo-agent")


def main() -> None:
    agent = Agent()
    signal.signal(signal.SIGTERM, agent.end)
    agent.serve()
    agent.end()


if __name__ == "__main__":
    main()
