"""A systemd user manager of one unit: records its words, runs what the unit says, and signals the main process alone.

Run as `systemctl` with FAKE_SYSTEMCTL naming its folder; a file `fails` in there makes it fail with that text.
"""

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(os.environ.get("FAKE_SYSTEMCTL", "."))
UNIT = Path(os.environ.get("XDG_CONFIG_HOME", ".")) / "systemd/user/acpmux.service"


def install(folder: Path, env: dict[str, str]) -> None:
    """Puts it in front of the PATH of this environment, with units of its own."""
    program = folder / "bin/systemctl"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(__file__)} "$@"\n')
    program.chmod(0o755)
    env["PATH"] = f"{program.parent}:{env['PATH']}"
    env["XDG_CONFIG_HOME"] = str(folder / "config")
    env["FAKE_SYSTEMCTL"] = str(folder)


def main_pid() -> int:
    try:
        pid = int((FOLDER / "pid").read_text())
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, ValueError):
        return 0
    return pid if state != "Z" else 0


def start() -> bool:
    """As Type=notify: done when it says that it is ready; False when it ends before."""
    if main_pid():
        return True
    lines = [line.partition("=") for line in UNIT.read_text().splitlines()]
    (command,) = (value for key, _, value in lines if key == "ExecStart")
    env = dict(shlex.split(value)[0].split("=", 1) for key, _, value in lines if key == "Environment")
    ready = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    ready.bind(f"\0{FOLDER}"[:100])
    ready.settimeout(0.02)
    process = subprocess.Popen(
        shlex.split(command.removeprefix(":")),
        env=env
        | {"NOTIFY_SOCKET": f"@{FOLDER}"[:100]}
        | {name: os.environ[name] for name in ("HOME", "ACPMUX_TEST_RUN") if name in os.environ},
        cwd="/",
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    (FOLDER / "pid").write_text(str(process.pid))
    while True:
        try:
            return ready.recv(100) == b"READY=1"
        except TimeoutError:
            if process.poll() is not None:
                return False


def stop() -> None:
    pid = main_pid()
    if pid:
        os.kill(pid, signal.SIGTERM)
    while main_pid():
        time.sleep(0.02)


def main() -> int:
    words = sys.argv[1:]
    with open(FOLDER / "calls", "a") as file:
        file.write(json.dumps(words) + "\n")
    fails = FOLDER / "fails"
    if fails.exists():
        print(fails.read_text(), file=sys.stderr)
        return 1
    if "show" in words:
        print(f"MainPID={main_pid()}")
    if {"disable", "restart"} & set(words):
        stop()
    if {"enable", "start", "restart"} & set(words):
        return 0 if start() else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
