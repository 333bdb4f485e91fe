"""The host's modules in a clean interpreter: only what is on the list, since each costs memory beside every running agent."""

import subprocess
import sys
from pathlib import Path

SRC = str(Path(__file__).resolve().parents[2] / "src")

ALLOWED = {
    "acpmux": {"model", "wire", "census", "host"},
    "heavy": {"asyncio", "subprocess", "dataclasses", "ctypes", "logging", "threading", "inspect", "msgspec", "click", "sqlite3", "pathlib", "tempfile", "ssl", "email", "typing_extensions", "tomllib"},
}  # fmt: skip


def loaded() -> set[str]:
    code = f"import sys; sys.path.insert(0, {SRC!r}); import acpmux.host.loop; print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_host_loads_only_its_own_rooms() -> None:
    ours = {name.split(".")[1] for name in loaded() if name.startswith("acpmux.")}
    assert ours <= ALLOWED["acpmux"]
    assert "acpmux.wire.jsonrpc" not in loaded()


def test_host_loads_nothing_heavy() -> None:
    assert {name for name in loaded() if name.split(".")[0] in ALLOWED["heavy"]} == set()
