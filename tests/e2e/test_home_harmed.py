"""The log's files, removed or replaced under a running daemon: nothing is lost in a file nobody finds again, and no agent is harmed."""

from kit.product import Product, pid_said, runs


def agent_of(product: Product, name: str = "s") -> int:
    product.agent()
    product.ok("new", "-a", "scripted", "-n", name)
    return product.json("info", name)["pid"]


def test_database_that_is_removed_accepts_nothing_and_the_next_daemon_ends_nobodys_work(product: Product) -> None:
    agent = agent_of(product)
    work = pid_said(product.steps("s", {"do": "spawn", "command": ["sleep", "300"]}))
    for path in product.home.glob("acpmux.db*"):
        path.unlink()
    assert "acpmux.db can't be written: it was removed or replaced" in product.fails("send", "s", "lost?", "--no-wait")
    assert "removed or replaced" in product.fails("new", "-a", "scripted", "-n", "t")
    product.ok("daemon", "shutdown")
    assert product.json("ls") == [] and runs(agent) and runs(work)
    (row,) = product.json("daemon", "status")["unknown"]
    assert row["pid"] == agent
    assert f"pid {agent}" in product.ok("daemon", "status") and f"pid {agent}" in product.run("doctor").stdout
    product.ok("new", "-a", "scripted", "-n", "s")  # another session's agent is none of them
    assert len(product.json("daemon", "status")["unknown"]) == 1
    product.ok("daemon", "shutdown", "--end-agents")
    assert not runs(agent) and not runs(work)


def test_database_that_is_put_back_goes_on(product: Product) -> None:
    agent_of(product)
    product.ok("send", "s", "one")
    moved = {path: path.with_name(f"away-{path.name}") for path in product.home.glob("acpmux.db*")}
    for path, away in moved.items():
        path.rename(away)
    product.fails("send", "s", "two", "--no-wait")
    for path, away in moved.items():
        away.rename(path)
    assert product.ok("send", "s", "three") == "echo: three\n"


def test_latest_transactions_that_are_removed_alone_are_noticed_too(product: Product) -> None:
    product.ok("daemon", "start")
    product.ok("daemon", "shutdown")
    agent_of(product)  # under a daemon that opened a file which was there
    (product.home / "acpmux.db-wal").unlink()
    assert "removed or replaced" in product.fails("send", "s", "lost?", "--no-wait")
    product.ok("daemon", "shutdown")
    product.ok("daemon", "start")
    product.ok("daemon", "shutdown", "--end-agents")
