"""A turn of a real agent does not notice that the daemon under it was killed and replaced."""

import os
import signal
import time
from pathlib import Path

from real.agents import RealAgent
from real.conftest import Acpmux
from real.model_servers import ModelServer


def test_turn_ends_normally_at_the_client_that_comes_back(
    acpmux: Acpmux, agent: RealAgent, model: ModelServer, tmp_path: Path
) -> None:
    acpmux("new", "-a", agent.name, "-n", "s", "--cwd", str(tmp_path), "--policy", "approve-all")
    assert "hello" in acpmux("send", "s", "hello")
    before = acpmux.json("info", "s")["pid"]
    acpmux("send", "s", "SLEEP: 4", "--no-wait", "--prompt-id", "slow")
    until = time.monotonic() + 20
    while not any("SLEEP" in model.text(body) for body in model.turns()):
        assert time.monotonic() < until, "the model was never asked"
        time.sleep(0.1)
    os.kill(acpmux.json("daemon", "status")["pid"], signal.SIGKILL)
    row = acpmux.json("info", "s")  # starts the next daemon
    assert (row["status"], row["pid"]) == ("running", before)
    told = acpmux.json("send", "s", "SLEEP: 4", "--prompt-id", "slow")
    assert told["stopReason"] == "end_turn" and told["reply"]
    assert "again" in acpmux("send", "s", "again")
