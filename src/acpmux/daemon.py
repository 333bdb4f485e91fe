"""The daemon's composition root: the one module that knows every room.

It takes the lock, opens the log, ends what an earlier daemon left, reads the sessions back, then listens.
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from acpmux.agents import profiles
from acpmux.errors import AcpmuxError, ConfigFault, OwnFault, StoreError
from acpmux.hub.hub import Hub, Parts
from acpmux.hub.launch import Surroundings
from acpmux.paths import Lock, Paths
from acpmux.runtime import configfile, logs, orphans, strangers
from acpmux.runtime.clock import SystemClock
from acpmux.runtime.descriptors import raise_limit
from acpmux.runtime.launcher import UnixHostLauncher
from acpmux.runtime.notify import notifier
from acpmux.runtime.tasks import Tasks
from acpmux.server.unix import UnixServer
from acpmux.store import check, salvage
from acpmux.store.log import SqliteLog

log = logging.getLogger("acpmux.daemon")


def run() -> int:
    """Runs the daemon in the foreground until a signal or `_acpmux/shutdown` ends it. Returns the exit code."""
    paths, ready = Paths.find(os.environ), notifier()
    try:
        paths.prepare()
        config = configfile.load(paths.config_file)
        lock = paths.acquire_lock()
    except AcpmuxError as error:
        print(f"acpmux: {error.message}", file=sys.stderr)
        return error.exit_code
    if lock is None:
        print(f"acpmux: another daemon runs for {paths.home}; see: acpmux daemon status", file=sys.stderr)
        ready()  # the home is served: no failure, and nothing to try again
        return 0
    logs.set_up(paths.logs)
    try:
        return asyncio.run(_serve(paths, config, lock, ready))
    except OwnFault as error:
        log.error("ended code=%s error=%r", error.code, error.message)
        print(f"acpmux: {error.message}", file=sys.stderr)
        return error.exit_code
    finally:
        paths.tidy()
        lock.release()


def check_config() -> str:
    """What a daemon would start with, in a few words.

    Raises: ConfigFault naming the file, the key and what is expected; UnknownAgent.
    """
    path = Paths.find(os.environ).config_file
    config = configfile.load(path)
    for name in {config.default_agent, *(agent.profile for agent in config.agents)} - {None}:
        if name not in {agent.name for agent in config.agents}:
            profiles.find(str(name))
    for agent in config.agents:
        _check_pool(agent, path)
    named = ", ".join(agent.name for agent in config.agents)
    return f"{path}: {f'agents {named}' if named else 'no agents of its own'}" if path.exists() else f"no {path}"


def check_log() -> str:
    """The state of the log in a few words.

    Raises: StoreError naming what is wrong; the next start of a daemon then saves what can be read.
    """
    path = Paths.find(os.environ).db
    aside = check.kept_aside(path)
    kept = f"; a damaged one is kept at {aside[-1]}, what could be read of it is served" if aside else ""
    if not path.exists():
        return f"no {path} yet{kept}"
    found = check.faults(path)
    if found:
        salvage.mark(path)
        raise StoreError(f"{path} is damaged: {'; '.join(found)[:600]}")
    return f"{path}: whole, {path.stat().st_size // 1_000_000} MB{kept}"


def _check_pool(agent: configfile.AgentConfig, where: Path) -> None:
    if agent.pool and not profiles.find(agent.profile or agent.name).poolable:
        raise ConfigFault(
            f"{where}: agents.{agent.name}.pool must be 0: its folder does not come with the session request, "
            "so it can't be started ahead of one"
        )


def config_in_force() -> list[tuple[str, Any, str]]:
    """(key, value, source) of what a daemon starting now takes. Raises: ConfigFault."""
    paths = Paths.find(os.environ)
    home = ("home", str(paths.home), "ACPMUX_HOME" if os.environ.get("ACPMUX_HOME") else "default")
    return [home, *configfile.in_force(paths.config_file)]


async def _end_others(paths: Paths, hub: Hub, adopted: frozenset[str]) -> None:
    """Ends what earlier daemons left, but not what runs for sessions that are not in the log."""
    unknown = await strangers.find(paths, {actor.session_id for actor in hub.actors()})
    for row in unknown:
        log.warning("host of a session that is not known, left alone host=%(hostId)s session=%(sessionId)s", row)
    for left in await orphans.end_orphans(paths, adopted | {row["hostId"] for row in unknown}):
        log.info("ended a host of an earlier daemon host=%s session=%s outcome=%s", *left)


def _memory_bytes() -> int:
    """What the machine has."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


async def _serve(paths: Paths, config: configfile.Config, lock: Lock, ready: Callable[[], None]) -> int:
    tasks = Tasks()
    store = await SqliteLog.open(paths.db)
    try:
        launcher = UnixHostLauncher(paths, tasks, raise_limit())
        hub = Hub(
            Parts(
                config,
                store,
                SystemClock(),
                launcher,
                tasks.spawn,
                Surroundings(dict(os.environ), str(paths.socket), _memory_bytes()),
                profiles.profiles(),
                profiles.find,
                lambda profile: profiles.installed(profile, os.environ.get("PATH", os.defpath)),
            )
        )
        done = asyncio.Event()
        server = UnixServer(hub, paths, tasks, done.set, lock.nameless)
        server.remove_stale()  # a daemon that could not listen must not touch a host
        await hub.recover(lambda adopted: _end_others(paths, hub, adopted))
        tasks.spawn("deadlines", hub.deadlines.run())
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, done.set)
        server.start()
        hub.keep_ready()
        log.info("listening pid=%d socket=%s sessions=%d", os.getpid(), paths.socket, len(hub.actors()))
        ready()
        await done.wait()
        server.close()
    finally:
        await tasks.close()
        await store.close()
    log.info("ended pid=%d", os.getpid())
    return 0
