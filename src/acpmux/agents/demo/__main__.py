"""The program: serves ACP on standard input and output until the input ends or TERM comes, then ends its servers."""

import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

from acpmux.agents.demo.agent import Agent
from acpmux.agents.demo.memory import Memory
from acpmux.agents.demo.peer import Peer


def state_folder() -> Path:
    """Where conversations are kept: $ACPMUX_DEMO_HOME, else under the user's state folder."""
    own = os.environ.get("ACPMUX_DEMO_HOME")
    if own:
        return Path(own)
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(state) / "acpmux-demo-agent"


def main() -> None:
    peer = Peer(sys.stdin.buffer, sys.stdout.fileno())
    agent = Agent(peer, Memory(state_folder()))
    signal.signal(signal.SIGTERM, _terminated)
    try:
        peer.serve(agent)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second TERM must not cut the orderly end short
        agent.close()


def _terminated(*_: object) -> NoReturn:
    raise SystemExit(0)


if __name__ == "__main__":
    main()
