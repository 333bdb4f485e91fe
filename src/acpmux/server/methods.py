"""Every method a client may call: ACP's own, and `_acpmux/*`."""

import json
import os
import secrets
from collections.abc import Awaitable, Callable
from typing import Any

from acpmux import __version__
from acpmux.census.table import memory_bytes
from acpmux.errors import ConfigFault, NoSuchAsk, NoSuchSession, UsageFault
from acpmux.hub import view
from acpmux.hub.actor import Actor
from acpmux.hub.answers import Outcome
from acpmux.hub.hub import Hub, NewSession, folder
from acpmux.hub.transcript import reply_text
from acpmux.hub.why import why
from acpmux.model.ids import AskId, ClientId, PromptId, Seq, SessionId
from acpmux.model.record import Kind
from acpmux.model.session import OnPermission, Prompt
from acpmux.paths import Paths
from acpmux.rules import messages as m
from acpmux.runtime import strangers
from acpmux.runtime.configfile import parse_mcp_json
from acpmux.server.bundles import Bundles
from acpmux.server.connection import Connection, RawError
from acpmux.server.requests import MethodNotFound, error_object, idle_of, policy_of, server_of, with_settings
from acpmux.wire import acp, mux

_FORWARDED = ("session/set_mode", "session/set_config_option")


class Methods:
    """Shared by all connections; keeps nothing of a client."""

    def __init__(self, hub: Hub, paths: Paths, shut_down: Callable[[], None]) -> None:
        self._hub = hub
        self._paths = paths
        self._shut_down = shut_down
        self.bundles = Bundles(hub)
        self._table: dict[str, Callable[[Connection, bytes], Awaitable[Any]]] = {
            "initialize": self._initialize,
            "session/new": self._new,
            "session/load": self._load,
            "session/resume": self._resume,
            "session/list": self._list,
            "session/prompt": self._prompt,
            "session/close": lambda c, p: self._kill(c, p, close=True),
            "session/delete": lambda c, p: self._kill(c, p, purge=True),
            "_acpmux/prompt": self._enqueue,
            "_acpmux/status": self._status,
            "_acpmux/sessions": self._sessions,
            "_acpmux/info": self._info,
            "_acpmux/attach": lambda c, p: self._follow(c, p, True),
            "_acpmux/watch": lambda c, p: self._follow(c, p, False),
            "_acpmux/detach": self._detach,
            "_acpmux/touch": self._touch,
            "_acpmux/events": self._events,
            "_acpmux/hibernate": self._hibernate,
            "_acpmux/wake": self._wake,
            "_acpmux/kill": self._kill,
            "_acpmux/census": self._census,
            "_acpmux/why": self._why,
            "_acpmux/ask_respond": self._respond,
            "_acpmux/pending": self._pending,
            "_acpmux/set": self._set,
            "_acpmux/agents": self._agents,
            "_acpmux/shutdown": self._shutdown,
            "_acpmux/export": lambda c, p: self.bundles.export(c.client_id, p),
            "_acpmux/import": lambda c, p: self.bundles.take(c.client_id, p),
        }

    async def call(self, client: Connection, method: str, params: bytes) -> bytes:
        """The raw JSON result. Raises: AcpmuxError; RawError for a harness's own error."""
        known = self._table.get(method)
        if known is not None:
            told = await known(client, params)
            return told if isinstance(told, bytes) else json.dumps(told).encode()
        return await self._forward(method, params)

    def notified(self, client: Connection, method: str, params: bytes) -> None:
        """Notifications: a cancel, and whatever else is for the harness."""
        named = acp.session_id_of(params)
        if named is None:
            return
        actor = self._hub.find(named)
        if method == "session/cancel":
            meta = mux.parse(params, mux.CancelParams).meta
            prompt_id = meta.acpmux.prompt_id if meta and meta.acpmux else None
            actor.tell(m.CancelAsked(None if prompt_id is None else PromptId(prompt_id)))
        elif not method.startswith(("_acpmux/", "$/")):
            actor.tell(m.NotificationAsked(method, params))

    def detached(self, session_id: SessionId, client_id: ClientId) -> None:
        try:
            self._hub.find(session_id).tell(m.ClientDetached(client_id))
        except NoSuchSession:
            return  # it was removed meanwhile

    # ------------------------------------------------------------ ACP

    async def _initialize(self, client: Connection, params: bytes) -> Any:
        client.asks_itself = True
        sessions: dict[str, Any] = {"list": {}, "resume": {}, "close": {}, "delete": {}}
        return {
            "protocolVersion": acp.PROTOCOL_VERSION,
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": {"image": True, "audio": True, "embeddedContext": True},
                "mcpCapabilities": {},
                "sessionCapabilities": sessions,
                "_meta": {"acpmux": {"version": __version__, "pid": os.getpid()}},
            },
            "authMethods": [],
            "agentInfo": {"name": "acpmux", "title": "acpmux", "version": __version__},
        }

    async def _new(self, client: Connection, params: bytes) -> Any:
        told = mux.parse(params, mux.NewParams)
        extras = (told.meta.acpmux if told.meta else None) or mux.NewExtras()
        prompt = None
        if extras.prompt is not None:
            asked = extras.prompt
            prompt = self._prompt_of(bytes(asked.blocks), asked.prompt_id, asked.on_permission)
        after, pinned = idle_of(extras.idle_after)
        servers = tuple(server_of(server) for server in told.mcp_servers)
        if extras.mcp_config is not None:
            servers += parse_mcp_json(extras.mcp_config.text, extras.mcp_config.path)
        cwd = folder(told.cwd)
        if not os.path.isdir(cwd):
            raise ConfigFault(f"the folder {cwd} is not there")
        actor = await self._hub.create(
            NewSession(extras.agent, extras.name, cwd, policy_of(extras.policy), after, pinned, servers, prompt)
        )
        if client.asks_itself:
            client.follow(actor, actor.seq, True)
        meta: dict[str, Any] = {"name": actor.session.checkpoint.name, "problems": list(actor.session.live.problems)}
        meta |= {"promptId": prompt.prompt_id} if prompt else {}
        return with_settings(actor, {"sessionId": actor.session_id, "_meta": {"acpmux": meta}})

    async def _load(self, client: Connection, params: bytes) -> Any:
        """Follows from the first record; the answer leaves when all that was stored has been sent."""
        return await self._opened(client, params, lambda actor: Seq(0))

    async def _resume(self, client: Connection, params: bytes) -> Any:
        return await self._opened(client, params, lambda actor: actor.seq)

    async def _opened(self, client: Connection, params: bytes, after: Callable[[Actor], Seq]) -> Any:
        actor = self._session(params)
        stored = actor.seq
        client.follow(actor, after(actor), True)
        await actor.ask(m.WakeAsked)
        await client.passed(actor.session_id, stored)
        return with_settings(actor, {})

    async def _list(self, client: Connection, params: bytes) -> Any:
        wanted = mux.parse(params, mux.ListParams).cwd
        rows = [view.row(actor) for actor in self._hub.actors()]
        return {
            "sessions": [
                {
                    "sessionId": row["sessionId"],
                    "cwd": row["cwd"],
                    "title": row["title"] or row["name"],
                    "updatedAt": row["lastActiveAt"],
                    "_meta": {"acpmux": row},
                }
                for row in rows
                if wanted in (None, row["cwd"])
            ]
        }

    async def _prompt(self, client: Connection, params: bytes) -> bytes:
        told = mux.parse(params, mux.PromptParams)
        extras = (told.meta.acpmux if told.meta else None) or mux.PromptExtras()
        actor = self._hub.find(told.session_id)
        prompt = self._prompt_of(bytes(told.prompt), extras.prompt_id, extras.on_permission)
        outcome = await actor.ask(lambda token: m.PromptAsked(token, prompt))
        assert isinstance(outcome, Outcome)
        await client.passed(actor.session_id, outcome.last_seq)
        meta: dict[str, Any] = {
            "promptId": outcome.prompt_id,
            "firstSeq": outcome.first_seq,
            "lastSeq": outcome.last_seq,
            "asked": outcome.asked,
            "denied": outcome.denied,
        }
        if not outcome.ok:
            raise RawError(error_object(actor, outcome))
        if extras.reply:
            meta["reply"] = reply_text(await actor.log.read_prompt(actor.session_id, outcome.prompt_id))
        payload = outcome.payload if outcome.payload.lstrip().startswith(b"{") else b"{}"
        return acp.merge_meta(payload, meta)

    async def _forward(self, method: str, params: bytes) -> bytes:
        """Whatever names a session goes to its harness untouched."""
        named = acp.session_id_of(params)
        if named is None or method.startswith("_acpmux/"):
            raise MethodNotFound(f"acpmux knows no method {method[:80]!r}")
        actor = self._hub.find(named)
        reply = await actor.ask(lambda token: m.RequestAsked(token, method, params))
        assert isinstance(reply, m.Reply)
        if not reply.ok:
            raise RawError(reply.payload)
        return reply.payload

    # ------------------------------------------------------------ _acpmux/*

    async def _enqueue(self, client: Connection, params: bytes) -> Any:
        told = mux.parse(params, mux.EnqueueParams)
        actor = self._hub.find(told.session_id)
        prompt = self._prompt_of(bytes(told.prompt), told.prompt_id, told.on_permission)
        stored = await actor.enqueue(prompt)
        return {"promptId": prompt.prompt_id, "state": stored}

    async def _status(self, client: Connection, params: bytes) -> Any:
        by_status: dict[str, int] = {}
        for actor in self._hub.actors():
            by_status[view.status(actor)] = by_status.get(view.status(actor), 0) + 1
        return {
            "version": __version__,
            "pid": os.getpid(),
            "home": str(self._paths.home),
            "socket": str(self._paths.socket),
            "startedAt": mux.rfc3339(self._hub.started_at_ms),
            "sessions": {"total": len(self._hub.actors()), "byStatus": by_status},
            "rssBytes": memory_bytes(os.getpid()),
            "pool": self._hub.pool.rows(),
            "unknown": await strangers.find(self._paths, self._known()),
        }

    async def _sessions(self, client: Connection, params: bytes) -> Any:
        wanted = mux.parse(params, mux.SessionsParams).status
        rows = [view.row(actor) for actor in self._hub.actors()]
        return {"sessions": [row for row in rows if wanted in (None, row["status"])]}

    async def _info(self, client: Connection, params: bytes) -> Any:
        return view.row(self._session(params))

    async def _follow(self, client: Connection, params: bytes, attach: bool) -> Any:
        told = mux.parse(params, mux.FollowParams)
        actor = self._hub.find(told.session_id)
        after = actor.seq if told.after_seq is None else told.after_seq
        if not 0 <= after <= actor.seq:
            raise UsageFault(f"record {after} is not there: the log holds 1 to {actor.seq}")
        if told.limit is not None:
            after = max(after, actor.seq - max(0, told.limit))
        client.follow(actor, Seq(after), attach)
        return {"lastSeq": actor.seq, "sessionId": actor.session_id}

    async def _detach(self, client: Connection, params: bytes) -> Any:
        client.unfollow(self._session(params).session_id)
        return {}

    async def _touch(self, client: Connection, params: bytes) -> Any:
        actor = self._session(params)
        if client.attached_to(actor.session_id):
            actor.tell(m.ClientTouched(client.client_id))
        return {}

    async def _events(self, client: Connection, params: bytes) -> Any:
        told = mux.parse(params, mux.EventsParams)
        actor = self._hub.find(told.session_id)
        try:
            kinds = [Kind(kind) for kind in told.kinds or ()]
        except ValueError as error:
            raise UsageFault(f"{error}; kinds are {', '.join(kind.value for kind in Kind)}") from None
        limit = max(1, min(told.limit, mux.EVENTS_LIMIT))
        if told.last is not None:
            last = max(0, min(told.last, mux.EVENTS_LIMIT))
            rows = await actor.log.read_kinds(actor.session_id, kinds or list(Kind), last)
        else:
            found = await actor.log.read(actor.session_id, Seq(max(0, told.after_seq)), limit)
            rows = [row for row in found if not kinds or row.record.kind in kinds]
        events = b",".join(mux.event(actor.session_id, row) for row in rows)
        return b'{"lastSeq":' + str(actor.seq).encode() + b',"events":[' + events + b"]}"

    async def _hibernate(self, client: Connection, params: bytes) -> Any:
        actor = self._session(params)
        await actor.ask(m.SleepAsked)
        return view.row(actor)

    async def _wake(self, client: Connection, params: bytes) -> Any:
        actor = self._session(params)
        await actor.ask(m.WakeAsked)
        return view.row(actor)

    async def _kill(self, client: Connection, params: bytes, close: bool = False, purge: bool = False) -> Any:
        told = mux.parse(params, mux.KillParams)
        actor = self._hub.find(told.session_id)
        done = await actor.ask(lambda token: m.StopAsked(token, told.all, close or told.close, purge or told.purge))
        return dict(done.detail) if isinstance(done, m.Done) else {}

    async def _census(self, client: Connection, params: bytes) -> Any:
        actor = self._session(params)
        return view.processes(actor, await actor.effects.census())

    async def _why(self, client: Connection, params: bytes) -> Any:
        return await why(self._session(params))

    async def _respond(self, client: Connection, params: bytes) -> Any:
        told = mux.parse(params, mux.AnswerParams)
        actor = self._hub.find(told.session_id)
        return await self.answer(actor, told.ask_id, told.choice, told.by or "cli", quiet=False)

    async def answer(self, actor: Actor, ask_id: str | None, choice: str, by: str, quiet: bool = True) -> Any:
        """Hands an answer to the session. `quiet`: one that came too late is dropped without a word."""
        asked = None if ask_id is None else AskId(ask_id)
        try:
            done = await actor.ask(lambda token: m.AskAnswered(token, asked, choice, by))
        except NoSuchAsk:
            if quiet:
                return {}
            raise
        return dict(done.detail) if isinstance(done, m.Done) else {}

    async def _pending(self, client: Connection, params: bytes) -> Any:
        rows: list[dict[str, Any]] = []
        for actor in self._hub.actors():
            checkpoint = actor.session.checkpoint
            rows += [
                {
                    "sessionId": checkpoint.session_id,
                    "name": checkpoint.name,
                    "askId": ask.ask_id,
                    "kind": ask.kind,
                    "title": ask.title,
                    "options": [{"optionId": o.option_id, "name": o.name, "kind": o.kind} for o in ask.options],
                }
                for ask in checkpoint.asks
            ]
        return {"pending": rows}

    async def _set(self, client: Connection, params: bytes) -> Any:
        told = mux.parse(params, mux.SetParams)
        actor = self._hub.find(told.session_id)
        after, pinned = idle_of(told.idle_after)
        if told.name is not None and told.name != actor.session.checkpoint.name:
            self._hub.check_name(told.name)
        policy = policy_of(told.policy)
        await actor.ask(lambda token: m.ChangeAsked(token, told.name, policy, after, pinned, told.title))
        return view.row(actor)

    async def _agents(self, client: Connection, params: bytes) -> Any:
        return {"agents": self._hub.agents()}

    async def _shutdown(self, client: Connection, params: bytes) -> Any:
        """Leaves the agents to the next daemon, or ends them first; goes unless one of them could not be ended."""
        told = mux.parse(params, mux.ShutdownParams)
        left = await self._hub.shutdown(told.end_agents, told.all)
        if told.end_agents:
            left += [row | {"name": row["hostId"]} for row in await strangers.end(self._paths, self._known())]
        if not left:
            self._shut_down()
        running = sum(actor.session.live.pid is not None for actor in self._hub.actors())
        return {"left": left, "running": running}

    # ------------------------------------------------------------ small parts

    def _session(self, params: bytes) -> Actor:
        return self._hub.find(mux.parse(params, mux.SessionParams).session_id)

    def _known(self) -> set[str]:
        return {actor.session_id for actor in self._hub.actors()}

    def _prompt_of(self, blocks: bytes, prompt_id: str | None, on_permission: str | None) -> Prompt:
        if not blocks.lstrip().startswith(b"["):
            raise UsageFault("prompt must be a list of content blocks")
        if prompt_id is not None and not 0 < len(prompt_id) <= 200:
            raise UsageFault("promptId must be 1 to 200 characters")
        try:
            wish = OnPermission(on_permission or "wait")
        except ValueError:
            raise UsageFault(f"onPermission must be wait, deny or fail, not {on_permission!r}") from None
        chosen = prompt_id or "p" + secrets.token_hex(8)
        return Prompt(PromptId(chosen), blocks, self._hub.clock.wall_ms(), wish)
