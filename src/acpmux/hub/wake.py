"""Bringing a harness up, in the order of SPEC section 7, until it may be given a prompt."""

import asyncio
import json
from dataclasses import dataclass
from typing import Any

from acpmux.errors import HarnessError, HostLost, LaunchFailed, SettingRefused, StartTimeout
from acpmux.hub.harness import Harness
from acpmux.hub.headers import launch_of
from acpmux.hub.launch import marked
from acpmux.hub.said import error_text, require
from acpmux.model.config import Profile, StartConfig
from acpmux.model.ids import AgentSessionId
from acpmux.model.session import Checkpoint
from acpmux.ports import Clock, HostLauncher, LaunchSpec
from acpmux.rules import messages as m
from acpmux.untyped import parse_json
from acpmux.wire import acp, jsonrpc

CORE_BUDGET_S = 6.0  # MarkCore reads configurations for 3 s and lists for 1 s at most
SETTLE_QUIET_MS = 300  # servers that show no change for so long have connected (SPEC section 7)
SETTLE_BUDGET_MS = 5000  # an agent whose server never comes is not kept waiting longer
SETTING_BUDGET_S = 30.0  # a mode or option is answered at once by every agent measured

# what a harness says while it opens a session and that is still true afterwards
_LASTING = frozenset({"available_commands_update", "session_info_update", "usage_update"})


@dataclass(frozen=True, slots=True)
class WakePlan:
    """What a wake needs to know, fixed before it begins."""

    checkpoint: Checkpoint
    profile: Profile
    spec: LaunchSpec
    budgets: StartConfig


async def bring_up(harness: Harness, plan: WakePlan, launcher: HostLauncher, clock: Clock) -> None:
    """Starts the host and its harness, unless it is ready, and opens the session.

    Then `harness` posts Woke and all that follows.

    Raises: HarnessFault or HostFault; nothing of the start is left running then.
    """
    began = clock.now()
    if not harness.ready:
        await make_ready(harness, plan.spec, plan.profile, plan.budgets, launcher)
    try:
        await _open(harness, plan, clock, began)
    except BaseException:
        await asyncio.shield(harness.abandon())
        raise


async def make_ready(
    harness: Harness, spec: LaunchSpec, profile: Profile, budgets: StartConfig, launcher: HostLauncher
) -> None:
    """Host, harness, `initialize`, MarkCore: all that needs no session.

    Raises: HarnessFault or HostFault; nothing of the start is left running then.
    """
    try:
        harness.linked(await launcher.start(spec, harness))
    except LaunchFailed as error:
        hint = f" Install it with: {profile.install}" if profile.install else ""
        raise LaunchFailed(f"{error.message}.{hint} See: acpmux agents", detail="spawn") from None
    try:
        harness.host_id = spec.host_id
        harness.capabilities = await _initialize(harness, spec, budgets)
        core = await harness.link.request("core", CORE_BUDGET_S)
        harness.launch, harness.unlisted = launch_of(core), not core.get("core")
        harness.ready = True
    except BaseException:
        await asyncio.shield(harness.abandon())
        raise


async def take(harness: Harness, spec: LaunchSpec) -> None:
    """A harness that was kept ready becomes this session's: its host reads what the launch names.

    Raises: HostFault; nothing of it is left running then.
    """
    servers = [list(server) for server in spec.servers]
    told: dict[str, Any] = {"session": spec.session_id, "cwd": spec.cwd, "servers": servers, "direct": spec.direct}
    try:
        harness.launch = launch_of(await harness.link.request("take", CORE_BUDGET_S, **told))
        if harness.over.is_set():
            raise HostLost("the agent that was kept ready has gone")
        harness.muted = False
    except BaseException:
        await asyncio.shield(harness.abandon())
        raise


async def _open(harness: Harness, plan: WakePlan, clock: Clock, began: float) -> None:
    launch = harness.launch
    unlisted = ("the agent's own processes could not be listed at its start",) if harness.unlisted else ()
    reply, how = await _session(harness, plan, harness.capabilities)
    harness.mode_option = reply.mode_option
    mode = await _set_mode(harness, plan.checkpoint, reply, how)
    await _set_options(harness, plan.checkpoint, reply)
    await _settle(harness, plan)
    harness.opened(
        m.Woke(
            harness.host_id,
            harness.agent_session_id,
            how,
            harness.link.leader.pid,
            harness.link.host_pid,
            harness.host_seq,
            mode,
            reply.modes,
            reply.config_options,
            plan.checkpoint.options,
            round((clock.now() - began) * 1000),
            (*launch.problems, *unlisted),
            launch.places,
            launch.servers,
            harness.pooled,
        ),
        _LASTING,
    )


async def _initialize(harness: Harness, spec: LaunchSpec, budgets: StartConfig) -> acp.Capabilities:
    budget_s = budgets.initialize_s
    try:
        async with asyncio.timeout(budget_s):
            response = await harness.call("initialize", acp.initialize_params())
    except TimeoutError:
        raise StartTimeout(
            f"the agent did not answer initialize within {budget_s:g} s{_noise(harness)}. Is "
            f"`{' '.join(spec.command)[:200]}` an ACP agent, and does it start by itself? "
            "A longer deadline: [start] initialize in config.toml"
        ) from None
    return acp.parse_initialize(require(response, "initialize failed"))


def _noise(harness: Harness) -> str:
    """What it printed instead, in a few words."""
    for said in harness.early:
        if isinstance(said, m.Noise):
            return f" and printed what is no message ({said.reason[:80]}: {said.sample[:80]!r})"
        if isinstance(said, m.OtherNotification) and said.method == "_acpmux/oversized":
            return " and printed a line that is too long"
    return ""


async def _session(harness: Harness, plan: WakePlan, capabilities: acp.Capabilities) -> tuple[acp.SessionReply, str]:
    budget_s = plan.budgets.session_s
    try:
        async with asyncio.timeout(budget_s):
            return await _open_session(harness, plan, capabilities)
    except TimeoutError:
        raise StartTimeout(
            f"the agent did not open its session within {budget_s:g} s; one of its MCP servers may hang. "
            "A longer deadline: [start] session in config.toml"
        ) from None


async def _open_session(
    harness: Harness, plan: WakePlan, capabilities: acp.Capabilities
) -> tuple[acp.SessionReply, str]:
    """Resume, else load, else begin afresh.

    A session never prompted can't be loaded by most agents and begins afresh.
    """
    checkpoint = plan.checkpoint
    servers = marked(checkpoint.servers, checkpoint.nonce)
    if checkpoint.agent_session_id is not None and checkpoint.prompted:
        ways = [way for way, offered in (("resume", capabilities.resume), ("load", capabilities.load)) if offered]
        if plan.profile.prefer_load:
            ways.reverse()
        for way in ways:
            params = acp.load_params(checkpoint.agent_session_id, checkpoint.cwd, servers)
            harness.muted = way == "load"
            response = await harness.call(f"session/{way}", params)
            harness.muted = False
            if response.ok:
                harness.agent_session_id = checkpoint.agent_session_id
                return acp.parse_session_reply(response.payload), way
            _refuse_if_in_use(error_text(response))
    payload = require(
        await harness.call("session/new", acp.new_params(checkpoint.cwd, servers)),
        "the agent did not open a session",
    )
    reply = acp.parse_session_reply(payload)
    if reply.agent_session_id is None:
        raise HarnessError("the agent's answer to session/new names no session")
    harness.agent_session_id = AgentSessionId(reply.agent_session_id)
    return reply, "rehydrated" if checkpoint.prompted or checkpoint.rehydrate else "new"


def _refuse_if_in_use(text: str) -> None:
    """A session that another process still writes must not be begun afresh beside it: the second try finds it free."""
    if "in use" in text or "active writer" in text:
        raise HarnessError(f"the agent's session is in use by another process: {text}")


async def _set_mode(harness: Harness, checkpoint: Checkpoint, reply: acp.SessionReply, how: str) -> str | None:
    """The mode a resumed session really has: the stored one, set again, answered, and not contradicted since."""
    wanted = checkpoint.mode
    if wanted is None or (how == "new" and checkpoint.mode == reply.mode):
        return reply.mode
    params = json.dumps({"sessionId": harness.agent_session_id, "modeId": wanted}).encode()
    before = len(harness.early)
    response = await _setting(harness, "session/set_mode", params, f"mode {wanted}")
    if not response.ok:
        raise SettingRefused(_refused(f"mode {wanted!r}", error_text(response)))
    told = [acp.parse_update(said.params).mode for said in harness.early[before:] if isinstance(said, m.Update)]
    last = next((mode for mode in reversed(told) if mode is not None), wanted)
    if last != wanted:
        raise SettingRefused(_refused(f"mode {wanted!r}", f"it reports mode {last!r}"))
    return wanted


async def _set_options(harness: Harness, checkpoint: Checkpoint, reply: acp.SessionReply) -> None:
    """Sets again each option a person chose; the mode's own option follows the mode."""
    for option in checkpoint.options:
        if option.config_id == reply.mode_option and checkpoint.mode is not None and reply.mode is not None:
            continue
        value = parse_json(option.value)
        told: dict[str, object] = {
            "sessionId": harness.agent_session_id,
            "configId": option.config_id,
            "value": value,
        }
        if isinstance(value, bool):
            told["type"] = "boolean"
        what = f"option {option.config_id!r}"
        response = await _setting(harness, "session/set_config_option", json.dumps(told).encode(), what)
        if not response.ok:
            raise SettingRefused(_refused(what, error_text(response)))
        now = acp.parse_session_reply(response.payload).values.get(option.config_id)
        if now is not None and parse_json(now) != value:
            raise SettingRefused(_refused(what, f"it reports {now.decode()[:100]}"))


async def _setting(harness: Harness, method: str, params: bytes, what: str) -> jsonrpc.Response:
    try:
        async with asyncio.timeout(SETTING_BUDGET_S):
            return await harness.call(method, params)
    except TimeoutError:
        raise SettingRefused(_refused(what, f"no answer within {SETTING_BUDGET_S:g} s")) from None


def _refused(what: str, why: str) -> str:
    return f"after the wake the agent did not take its stored {what} again ({why}), so no prompt was sent to it"


async def _settle(harness: Harness, plan: WakePlan) -> None:
    if plan.profile.settle and plan.checkpoint.servers:
        await harness.link.request(
            "settle", SETTLE_BUDGET_MS / 1000 + 2, quiet_ms=SETTLE_QUIET_MS, budget_ms=SETTLE_BUDGET_MS
        )
