"""What is too much for one message, one pipe or one session fails alone: the session, its agent and its work go on."""

import sys

from kit.product import Product, pid_said, runs

# jobs whose commands are as long as a program's arguments may be: more than two megabytes of them, escaped to twelve
JOBS = """
import subprocess, time
jobs = [subprocess.Popen(["sh", "-c", "sleep 300; :", *[b"\\xe9" * 4000] * 28]) for _ in range(20)]
time.sleep(300)
"""


def test_looking_at_work_with_very_long_commands_ends_nothing(product: Product) -> None:
    product.agent()
    product.ok("new", "-a", "scripted", "-n", "s")
    pid = pid_said(product.steps("s", {"do": "spawn", "command": [sys.executable, "-c", JOBS]}))
    told: list[dict[str, object]] = []
    while sum(row["ppid"] == pid for row in told) < 20:
        told = product.json("ps", "s")["processes"]
    jobs = [row for row in told if row["ppid"] == pid]
    assert all(row["cut"] for row in jobs) and not [row for row in told if row["pid"] == pid and row["cut"]]
    assert f"pid {pid}" in product.fails("hibernate", "s")
    assert all(runs(int(str(row["pid"]))) for row in told) and product.status("s") == "ready"
