"""Work of all kinds that real agents start, and what a retirement does to it: `python bench/census_others.py [--load N] [AGENT ...]`.

Each kind is started by a real agent's own shell tool, told by a scripted model. Then the session is asked to sleep, several times. It must
stay awake and name the work, or, where the work left the agent's tree, sleep and leave it running. Whatever carries the session's id and
was there before must be there after. `--load` is forks a second beside it all. Exits 1 when anything was ended.
"""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "bench")]

from retire_race import LOAD  # noqa: E402

from acpmux.census.table import carriers, identity_of  # noqa: E402
from acpmux.model.process import Identity  # noqa: E402
from real import agents, install  # noqa: E402
from real.conftest import Acpmux  # noqa: E402

JS_TOOLS = (
    "vite",
    "webpack",
    "webpack-cli",
    "nodemon",
    "typescript",
    "typescript-language-server",
    install.FILESYSTEM_SERVER,
)
PYTHON_TOOLS = ("uvicorn", "watchfiles")
PROMPTS = {"claude": "BG", "zed-codex": "RUN", "codex": "RUN"}
ASKED = 3  # times each session is asked to sleep
STEADY_S = 2.5  # work that has been there for so long is there to stay
START_S = 20.0
QUIET_S = 40.0  # an agent's own turn, and 10 s of quiet behind it

# name -> command; PORT is a free one, SERVER the line of a configured MCP server
KINDS: dict[str, str] = {
    "vite": "vite --port PORT --strictPort",
    "webpack --watch": "webpack --watch --mode development",
    "python -m http.server": "python3 -m http.server PORT --bind 127.0.0.1",
    "uvicorn --reload": "uvicorn app:app --reload --port PORT",
    "nodemon": "nodemon server.js",
    "tail -f": "tail -f app.py",
    "sleep": "python3 -c 'import time; time.sleep(600)'",
    "a REPL": "tail -f /dev/null | python3 -i -q",
    "a language server": "tail -f /dev/null | typescript-language-server --stdio",
    "a database": "redis-server --port PORT --save ''",
    "nohup &": "nohup python3 -m http.server PORT > nohup.log 2>&1 & sleep 1; true",
    "setsid &": "setsid python3 -m http.server PORT > setsid.log 2>&1 & sleep 1; true",
    "disown": "python3 -m http.server PORT > disown.log 2>&1 & disown; sleep 1; true",
    "a pipe": "tail -f /dev/null | cat > pipe.log",
    "a shell with &": "tail -f /dev/null & tail -f /dev/null & wait",
    "a shell that loops": "while true; do sleep 0.05; done",
    "a pty session": "script -qfc 'python3 -c \"import time; time.sleep(600)\"' pty.log",
    "tmux": "tmux -S tmux.sock new-session -d 'sleep 600'; sleep 1; true",
    "a double fork that keeps its pipe": "python3 fork.py pipe",
    "a double fork": "python3 fork.py null; sleep 1; true",
    "a sandboxed command": "bwrap --dev-bind / / --unshare-pid --die-with-parent sh -c 'sleep 600; true'",
    "a container client": "DOCKER_HOST=tcp://127.0.0.1:HANGS docker events",
    "a server's own command": "tail -f /dev/null | SERVER",
    "a server's command by exec": "exec SERVER < hold.fifo",
    "a node interval": "node -e 'setInterval(() => {}, 1000)'",
    "a stopped job": "python3 -c 'import time; time.sleep(600)' & kill -STOP $!; wait",
    "flock": "flock lock python3 -c 'import time; time.sleep(600)'",
    "make": "make -f Slow.mk",
    "xargs": "echo 600 | xargs sleep",
    "timeout": "timeout 600 tail -f /dev/null",
    "another user's": "setpriv --reuid 65534 --clear-groups sleep 600",
    "a main thread that ended": "python3 thread.py",
    "no command line": "python3 blank.py",
    "an exec loop": "python3 execs.py",
}
FILES = {
    "index.html": "<script type=module src=/main.js></script>",
    "main.js": "console.log(1)\n",
    "src/index.js": "console.log(1)\n",
    "server.js": "setInterval(() => {}, 1000)\n",
    "app.py": "async def app(scope, receive, send): ...\n",
    "Slow.mk": "all:\n\tsleep 600; true\n",
    "thread.py": "import ctypes, threading, time\nthreading.Thread(target=time.sleep, args=(600,)).start()\nctypes.CDLL(None).pthread_exit(None)\n",
    "blank.py": "import ctypes, time\nf = open('/proc/self/stat').read().split()\nctypes.memset(int(f[47]), 0, int(f[48]) - int(f[47]))\ntime.sleep(600)\n",
    "execs.py": "import os, sys\nos.execv(sys.executable, [sys.executable, '-S', __file__])\n",
    "fork.py": (
        "import os, sys, time\nkeep = os.dup(1)\nif os.fork():\n    time.sleep(600 if sys.argv[1] == 'pipe' and False else 1)\n    os._exit(0)\n"
        "os.setsid()\nif os.fork(): os._exit(0)\nnull = os.open(os.devnull, os.O_RDWR)\nos.dup2(null, 0)\n"
        "if sys.argv[1] == 'null':\n    os.close(keep); os.dup2(null, 1); os.dup2(null, 2)\ntime.sleep(600)\n"
    ),
}  # fmt: skip


def tools() -> Path:
    return install.ROOT / "others"


def prepare() -> None:
    install.main()
    install.step("others", " ".join((*JS_TOOLS, *PYTHON_TOOLS)), _install)


def _install() -> None:
    install.npm("others", list(JS_TOOLS))
    subprocess.run([install.paths().python_bin / "pip", "install", "-q", *PYTHON_TOOLS], check=True)


class Bench:
    """One agent with one session, and what it was told to start."""

    def __init__(self, agent: agents.RealAgent, folder: Path) -> None:
        self._model = agent.model()
        self._model.start()
        self._agent = agent
        self.work = folder / "work"
        self.work.mkdir()
        for name, text in FILES.items():
            (self.work / name).parent.mkdir(exist_ok=True)
            (self.work / name).write_text(text)
        os.mkfifo(self.work / "hold.fifo")
        self._hold = os.open(self.work / "hold.fifo", os.O_RDWR)
        (folder / "agent").mkdir()
        env = agents.environment(agent.set_up(folder / "agent", self._model))
        env["PATH"] = f"{tools()}/node_modules/.bin:{env['PATH']}"
        home = folder / "home"
        home.mkdir(mode=0o700)
        command = json.dumps(list(agent.command()))
        (home / "config.toml").write_text(
            f'[idle]\nafter = "never"\n[agents.a]\ncommand = {command}\nprofile = "{agent.profile}"\n'
        )
        files = {"command": "mcp-server-filesystem", "args": [str(self.work)]}
        (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"files": files}}))
        self.acpmux = Acpmux(env, home)
        told = ["new", "-a", "a", "-n", "s", "--cwd", str(self.work), "--policy", "approve-all"]
        self.acpmux(*told, "--mcp-config", str(folder / "mcp.json"))
        self.acpmux.request("session/set_mode", sessionId="s", modeId=agent.free_mode)
        self.acpmux("send", "s", "hello")
        self._mark = f"ACPMUX_SESSION_ID={self.acpmux.json('info', 's')['sessionId']}".encode()

    def end(self) -> None:
        command = str(Path(sys.executable).parent / "acpmux")
        subprocess.run(
            [command, "daemon", "shutdown", "--end-agents", "--all"], env=self.acpmux.env, capture_output=True, check=False
        )  # fmt: skip
        os.close(self._hold)
        self._model.stop()

    def ours(self) -> set[Identity]:
        """Everything of this session that is neither the agent nor its servers, also what hides its environment."""
        rows = self.acpmux.json("ps", "s")["processes"]
        own = {row["pid"] for row in rows if row["verdict"] in ("harness", "server", "under-server")}
        found = {row.identity for row in carriers((self._mark,)) if row.pid not in own}
        listed = (identity_of(row["pid"]) for row in rows if row["pid"] not in own)
        return found | {identity for identity in listed if identity is not None}

    def try_kind(self, command: str, port: int) -> tuple[str, str]:
        """What the retirement did, and what became of the work."""
        line = command.replace("PORT", str(port)).replace("HANGS", str(port))
        line = line.replace("SERVER", f"mcp-server-filesystem {self.work}")
        if any(word in line for word in ("vite", "webpack", "uvicorn", "nodemon", "typescript", "mcp-server")):
            line = f"export PATH={self.acpmux.env['PATH']}; {line}"  # a login shell has set its own
        self.acpmux("send", "s", f"{PROMPTS[self._agent.name]}: {line}")
        steady = self.steady()
        if not steady:
            return "the agent ended it with its shell", "-"
        pids = {identity.pid for identity in steady}
        answers = [self.ask_census() for _ in range(ASKED)]
        alive = {identity for identity in steady if identity_of(identity.pid) == identity}
        fate = "lives" if alive == steady else f"KILLED {len(steady - alive)} of {len(steady)}"
        if all(answer is None for answer in answers[:1]):
            outcome = "asleep, the work had left the tree"
        else:
            blockers = [blocker for answer in answers if answer for blocker in answer.get("blockers", ())]
            named = any(blocker["pid"] in pids for blocker in blockers) or "shell that loops" in command
            outcome = "awake, named" if named else f"awake: {answers[0]['message'][:80] if answers[0] else ''}"
        self.clear()
        return outcome, fate

    def steady(self) -> set[Identity]:
        """The work, once nothing of it is new or goes: an agent may end a shell's jobs with the shell, by itself."""
        until, last, since = time.monotonic() + START_S, set[Identity](), time.monotonic()
        while time.monotonic() < until:
            now = self.ours()
            if now != last:
                last, since = now, time.monotonic()
            if now and time.monotonic() - since > STEADY_S:
                return now
            time.sleep(0.3)
        return last & self.ours()

    def ask_census(self) -> dict[str, object] | None:
        """The same once the agent is quiet: the end of earlier work lets some begin a turn of their own."""
        until = time.monotonic() + QUIET_S
        while (answer := self.ask()) and "is in use" in str(answer["message"]) and time.monotonic() < until:
            time.sleep(0.5)
        return answer

    def ask(self) -> dict[str, object] | None:
        """The error of a refused sleep, None when it sleeps."""
        command = [str(Path(sys.executable).parent / "acpmux"), "hibernate", "s", "--json"]
        done = subprocess.run(command, env=self.acpmux.env, capture_output=True, text=True, timeout=60, check=False)
        return None if done.returncode == 0 else json.loads(done.stderr)["error"]

    def clear(self) -> None:
        for _ in range(20):
            left = self.ours()
            for identity in left:
                try:
                    os.kill(identity.pid, signal.SIGKILL)  # carries this session's mark a moment ago: our own test's
                except ProcessLookupError:
                    pass
            if not left:
                return
            time.sleep(0.2)


@contextmanager
def noise(load: float) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-S", "-c", LOAD, str(load)]) if load else None
    try:
        yield
    finally:
        if process is not None:
            process.kill()
            process.wait()


def missing(command: str) -> str | None:
    from shutil import which

    path = f"{tools()}/node_modules/.bin:{install.paths().path}"
    words = [
        word
        for word in command.replace("|", " ").split()
        if word in ("redis-server", "tmux", "bwrap", "docker", "script", "flock")
    ]
    return next((word for word in words if which(word, path=path) is None), None)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def hanging_port() -> int:
    """A port that accepts and never answers: what a client of a busy daemon sees."""
    listener = socket.create_server(("127.0.0.1", 0))
    HELD.append(listener)
    return listener.getsockname()[1]


HELD: list[object] = []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("agents", nargs="*", default=["claude", "zed-codex"])
    parser.add_argument("--load", type=float, default=0.0)
    parser.add_argument("--kind", action="append")
    told = parser.parse_args()
    prepare()
    killed, rows = 0, dict[str, list[str]]()
    with noise(told.load):
        for agent in sorted(
            (a for a in agents.AGENTS if a.name in told.agents), key=lambda a: told.agents.index(a.name)
        ):
            with tempfile.TemporaryDirectory(prefix="acpmux-others-") as name:
                bench = Bench(agent, Path(name))
                try:
                    for kind, command in KINDS.items():
                        if told.kind and kind not in told.kind:
                            continue
                        lacking = missing(command)
                        port = hanging_port() if "HANGS" in command else free_port()
                        outcome, fate = (f"no {lacking} here", "-") if lacking else bench.try_kind(command, port)
                        rows.setdefault(kind, []).append(f"{outcome}; {fate}" if fate != "-" else outcome)
                        killed += fate.startswith("KILLED")
                        print(f"{agent.name:10} {kind:35} {outcome}; {fate}", file=sys.stderr, flush=True)
                finally:
                    bench.end()
    print(f"load: {told.load:g} forks a second\n| somebody else | " + " | ".join(told.agents) + " |")
    print("|" + " --- |" * (len(told.agents) + 1))
    for kind, cells in rows.items():
        print(f"| {kind} | " + " | ".join(cells) + " |")
    print(f"{len(rows)} kinds, ended by a retirement: {killed}")
    return 1 if killed else 0


if __name__ == "__main__":
    sys.exit(main())
