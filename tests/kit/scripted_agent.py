"""A real ACP program that does what a test tells it: `python tests/kit/scripted_agent.py SCRIPT.json`.

The script's members say how it behaves (see `Script`); a prompt's text may be a JSON list of steps to do in that turn. Everything it was
started with and sent is written to the script's `record` file, one JSON line each.
"""

import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict


class Script(TypedDict, total=False):
    """`start`, `initialize`, `new`, `load` and `resume` are lists of steps done at that point, before its answer.

    `loads` and `resumes` are "ok" (default), "empty", an error code, or "absent" (not offered). `set_mode` is "ok", "fail" or
    "contradict" or "contradict by option". `mode_after_load` is the mode it claims then. `ignore_term` makes TERM do nothing.
    """

    record: str
    start: list[dict[str, Any]]
    initialize: list[dict[str, Any]]
    new: list[dict[str, Any]]
    load: list[dict[str, Any]]
    resume: list[dict[str, Any]]
    loads: str | int
    resumes: str | int
    set_mode: str
    mode_after_load: str
    ignore_term: bool


SESSION = "agent-session-1"
MODES = ("default", "plan", "wide")


def _ends(tie: str) -> tuple[int, int]:
    """The agent's end and the other one's."""
    if tie == "socket":
        ours, theirs = socket.socketpair()
        return ours.detach(), theirs.detach()
    if tie == "terminal":
        return os.openpty()
    if tie == "host":
        return 0, os.dup(2)
    if tie == "fifo":
        path = f"{tempfile.mkdtemp()}/fifo"
        os.mkfifo(path)
        ends = os.open(path, os.O_RDONLY | os.O_NONBLOCK), os.open(path, os.O_WRONLY)
        shutil.rmtree(os.path.dirname(path))
        return ends
    if tie.startswith("tcp"):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            theirs = socket.create_connection(listener.getsockname())
            ours = listener.dup() if tie == "tcp not accepted" else listener.accept()[0]
            return ours.detach(), theirs.detach()
    if tie in ("controlling terminal", "/dev/tty"):
        return os.openpty()
    return os.pipe()


def _hold(tie: str, end: int) -> None:
    """In the work that leaves: takes this end as its output, or the terminal as the one that can hang it up."""
    if tie not in ("controlling terminal", "/dev/tty"):
        os.dup2(end, 1)
        return
    os.setsid()
    fcntl.ioctl(end, termios.TIOCSCTTY, 0)
    if tie == "/dev/tty":
        os.dup2(os.open("/dev/tty", os.O_RDWR), 1)


class Stop(Exception):
    """A step answered the request itself."""


class ScriptedAgent:
    def __init__(self, script: Script) -> None:
        self.script = script
        self.children: list[subprocess.Popen[bytes]] = []
        self.asked = 100
        self.pending: list[str] = []
        self.kept: list[int] = []
        if script.get("ignore_term"):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self.record({"argv": sys.argv, "cwd": os.getcwd(), "env": sorted(os.environ)})

    def record(self, told: Any) -> None:
        path = self.script.get("record")
        if path:
            with open(path, "a") as file:
                file.write(json.dumps(told) + "\n")

    # ------------------------------------------------------------ the wire

    def write(self, line: bytes) -> None:
        sys.stdout.buffer.write(line + b"\n")
        sys.stdout.buffer.flush()

    def say(self, told: dict[str, Any]) -> None:
        self.write(json.dumps({"jsonrpc": "2.0", **told}).encode())

    def update(self, **update: Any) -> None:
        self.say({"method": "session/update", "params": {"sessionId": SESSION, "update": update}})

    def read(self) -> dict[str, Any] | None:
        line = sys.stdin.readline()
        if not line:
            return None
        told = json.loads(line)
        self.record({"got": told})
        return told

    def serve(self) -> None:
        self.steps(self.script.get("start", []))
        while (told := self.read()) is not None:
            if "method" in told and "id" in told:
                self.handle(told)

    def handle(self, told: dict[str, Any]) -> None:
        name = told["method"].removeprefix("session/")
        handler: Callable[[dict[str, Any]], Any] | None = getattr(self, f"on_{name}", None)
        try:
            if handler is None:
                self.say({"id": told["id"], "error": {"code": -32601, "message": f"no {told['method']}"}})
            else:
                self.say({"id": told["id"], "result": handler(told.get("params") or {})})
        except Stop as stop:
            if stop.args:
                self.say({"id": told["id"], "error": stop.args[0]})

    # ------------------------------------------------------------ methods

    def on_initialize(self, params: dict[str, Any]) -> Any:
        self.steps(self.script.get("initialize", []))
        sessions = {} if self.script.get("resumes") == "absent" else {"resume": {}}
        load = self.script.get("loads") != "absent"
        return {"protocolVersion": 1, "agentCapabilities": {"loadSession": load, "sessionCapabilities": sessions}}

    def on_new(self, params: dict[str, Any]) -> Any:
        self.steps(self.script.get("new", []))
        self.start_servers(params)
        return {"sessionId": SESSION, "modes": self.modes("default")}

    def on_load(self, params: dict[str, Any]) -> Any:
        self.steps(self.script.get("load", []))
        return self.opened(self.script.get("loads", "ok"), params)

    def on_resume(self, params: dict[str, Any]) -> Any:
        self.steps(self.script.get("resume", []))
        return self.opened(self.script.get("resumes", "ok"), params)

    def opened(self, how: str | int, params: dict[str, Any]) -> Any:
        if isinstance(how, int):
            raise Stop({"code": how, "message": "no such session"})
        self.start_servers(params)
        return {} if how == "empty" else {"modes": self.modes(self.script.get("mode_after_load", "wide"))}

    def modes(self, current: str) -> dict[str, Any]:
        return {"currentModeId": current, "availableModes": [{"id": mode, "name": mode} for mode in MODES]}

    def on_set_mode(self, params: dict[str, Any]) -> Any:
        how = self.script.get("set_mode", "ok")
        if how == "fail":
            raise Stop({"code": -32602, "message": "no such mode"})
        told = "wide" if how == "contradict" else params["modeId"]
        if how == "contradict by option":
            option = {"id": "mode", "category": "mode", "type": "select", "currentValue": "wide"}
            self.update(sessionUpdate="config_option_update", configOptions=[option])
        else:
            self.update(sessionUpdate="current_mode_update", currentModeId=told)
        return {}

    def on_prompt(self, params: dict[str, Any]) -> Any:
        text = params["prompt"][-1].get("text", "")
        if text.startswith("["):
            self.steps(json.loads(text))
        else:
            self.update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": f"echo: {text}"})
        return {"stopReason": "end_turn"}

    def start_servers(self, params: dict[str, Any]) -> None:
        for told in params.get("mcpServers") or ():
            env = dict(os.environ) | {item["name"]: item["value"] for item in told.get("env", ())}
            try:
                self.children.append(subprocess.Popen([told["command"], *told["args"]], env=env, stdin=subprocess.PIPE))
            except FileNotFoundError:
                pass  # as real agents do: they go on without it

    # ------------------------------------------------------------ steps

    def steps(self, steps: list[dict[str, Any]]) -> None:
        for step in steps:
            getattr(self, f"do_{step['do']}")(**{key: value for key, value in step.items() if key != "do"})

    def do_say(self, text: str) -> None:
        self.update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": text})

    def do_raw(self, line: str) -> None:
        self.write(line.encode("utf-8", "surrogateescape"))

    def do_bytes(self, hex: str) -> None:
        self.write(bytes.fromhex(hex))

    def do_ask(self, kind: str = "edit") -> None:
        """Asks for a permission, and says what was answered."""
        self.asked += 1
        options = [
            {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
            {"optionId": "no", "name": "No", "kind": "reject_once"},
        ]
        call = {"toolCallId": f"call-{self.asked}", "title": "touch the file", "kind": kind}
        params = {"sessionId": SESSION, "toolCall": call, "options": options}
        self.say({"id": self.asked, "method": "session/request_permission", "params": params})
        while (told := self.read()) is not None:
            if told.get("method") == "session/cancel":
                continue
            if told.get("id") == self.asked:
                self.do_say(json.dumps(told["result"]["outcome"]))
                return

    def do_gate(self, path: str) -> None:
        """Says that it is here, then waits for the test: `path` is a fifo, `path`.reached the sign."""
        Path(f"{path}.reached").touch()
        with open(path):
            pass

    def do_spawn(
        self, command: list[str], session: bool = True, env: dict[str, str] | None = None, quiet: bool = False
    ) -> None:
        """A child as agents start commands: in a session of its own, its pid said."""
        child = subprocess.Popen(
            command, start_new_session=session, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env=os.environ | (env or {}),
        )  # fmt: skip
        self.children.append(child)
        if not quiet:
            self.do_say(f"pid {child.pid}")

    def do_detach(self, command: list[str], tie: str = "", session: bool = True) -> None:
        """Work that leaves the tree: a double fork into a session of its own, or a group. With a `tie` (see `_ends`) its output still
        goes to this agent, or (host) to the host's own pipe for the agent's errors."""
        read, write = os.pipe()
        own_read, own_write = _ends(tie)
        if os.fork() == 0:
            if session:
                os.setsid()
            if os.fork():
                os._exit(0)
            if not session:
                os.setpgid(0, 0)
            null = os.open(os.devnull, os.O_RDWR)
            for fd in (0, 1, 2):
                os.dup2(null, fd)
            if tie:
                _hold(tie, own_write)
            os.write(write, f"{os.getpid()}\n".encode())
            os.execvp(command[0], command)
        os.wait()
        if tie != "host":
            os.close(own_write)
        if tie:
            self.kept.append(own_read)
        else:
            os.close(own_read)
        pid = os.read(read, 100).decode().strip()
        os.close(read)
        os.close(write)
        self.do_say(f"pid {pid}")

    def do_flood(self, count: int) -> None:
        for number in range(count):
            self.do_say(f"{number} ")

    def do_ticks(self, count: int, per_second: int) -> None:
        """Updates at an even pace, each holding the moment it was written (CLOCK_MONOTONIC seconds, one clock for all)."""
        due = time.monotonic()
        for _ in range(count):
            due += 1 / per_second
            time.sleep(max(0.0, due - time.monotonic()))
            self.do_say(f"at {time.monotonic():.6f}")

    def do_huge(self, size: int) -> None:
        self.do_say("x" * size)

    def do_stderr(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def do_close(self, fd: int) -> None:
        """Lives on without its input from now on, or without its output from just after the turn on."""
        self.kept += os.pipe()
        if fd == 0:
            os.dup2(self.kept[-2], 0)
        else:
            threading.Timer(0.2, os.dup2, (os.open(os.devnull, os.O_WRONLY), fd)).start()

    def do_hang(self) -> None:
        while True:
            time.sleep(3600)

    def do_sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def do_exit(self, code: int) -> None:
        os._exit(code)

    def do_fail(self, code: int, message: str) -> None:
        raise Stop({"code": code, "message": message})

    def do_cancelled(self) -> None:
        """Waits for session/cancel."""
        while (told := self.read()) is not None and told.get("method") != "session/cancel":
            pass


def main() -> None:
    ScriptedAgent(json.loads(Path(sys.argv[1]).read_text())).serve()


if __name__ == "__main__":
    main()
