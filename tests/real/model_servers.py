"""Model servers on loopback, scripted by the prompt's text: real agents run against them without a key or a network.

The last text of the person decides the answer. `RUN: command` runs it in the agent's shell tool, `BG: command` in the background (Claude),
`TOOL: name {json}` calls a tool by name, `SLEEP: seconds` answers late; anything else is echoed. Every request is kept: it is what a model
would have seen.
"""

import itertools
import json
import re
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SHELLS = ("exec_command", "shell_command", "shell", "local_shell", "bash")
COMMAND = re.compile(r"(RUN|BG|TOOL|SLEEP): *([^\n]*)")
LONGEST_SLEEP_S = 120.0  # of a scripted answer


class ModelServer:
    """A server on a free loopback port from `start` to `stop`. `requests` holds the bodies, oldest first."""

    def __init__(self, handler: type["_Handler"]) -> None:
        self.requests: list[dict[str, Any]] = []
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._http.daemon_threads = True
        self._http.model = self  # type: ignore[attr-defined]
        self._http.handle_error = lambda *_: None  # type: ignore[method-assign]  # agents hang up when they end
        self._thread = threading.Thread(target=self._http.serve_forever, name="model", daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def turns(self) -> list[dict[str, Any]]:
        """The requests that offer tools: titles and the like are asked without."""
        return [body for body in list(self.requests) if body.get("tools")]

    def tools(self, body: dict[str, Any]) -> list[str]:
        """The names of the tools offered, sorted."""
        return sorted(tool_schemas(body))

    def mode(self, body: dict[str, Any]) -> str | None:
        """The mode the model is told NOW: the newest word of it, since older ones stay in the conversation.

        Codex tells its sandbox; Claude its permission mode in the first request of each process, else its plan mode's begin and end.
        """
        sandboxes = re.findall(r"`sandbox_mode` is `([\w-]+)`", self.text(body))
        if sandboxes:
            return sandboxes[-1]
        for safeguard in body.get("safeguards") or ():
            told = (safeguard.get("classifier_context") or {}).get("permission_mode")
            if told:
                return str(told)
        plans = re.findall(r"(Plan mode (?:is|still) active)|(exited plan mode)", self.text(body), re.IGNORECASE)
        return "plan" if plans and plans[-1][0] else None

    def turn_of(self, prompt: str) -> dict[str, Any]:
        """The first request that carries this prompt and offers tools."""
        return next(body for body in self.turns() if prompt in self.text(body))

    def text(self, body: dict[str, Any]) -> str:
        """All that the model was told, as one text to search in."""
        return json.dumps({key: value for key, value in body.items() if key != "tools"})


def tool_schemas(body: dict[str, Any]) -> dict[str, Any]:
    """Tool names with their parameters; Codex puts MCP tools into namespaces."""
    found: dict[str, Any] = {}
    for tool in body.get("tools", ()):
        inner = tool.get("tools", ()) if tool.get("type") == "namespace" else (tool,)
        for one in inner:
            name = one.get("name") or one.get("type")
            prefix = f"{tool.get('name')}." if tool.get("type") == "namespace" else ""
            found[prefix + name] = one.get("parameters") or one.get("input_schema") or {}
    return found


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    ids = itertools.count(1)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""

    @property
    def model(self) -> ModelServer:
        return self.server.model  # type: ignore[attr-defined,no-any-return]

    def body(self) -> dict[str, Any]:
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        try:
            told = json.loads(raw or b"{}")
        except ValueError:
            told = {}
        self.model.requests.append(told)
        return told

    def send_json(self, told: Any, code: int = 200) -> None:
        data = json.dumps(told).encode()
        self.send_response(code)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def start_events(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True

    def event(self, kind: str, **told: Any) -> None:
        self.wfile.write(f"event: {kind}\ndata: {json.dumps({'type': kind, **told})}\n\n".encode())
        self.wfile.flush()

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def do_GET(self) -> None:
        model = {
            "id": "scripted",
            "type": "model",
            "object": "model",
            "display_name": "Scripted",
            "created": 1,
        }
        self.send_json({"object": "list", "data": [model], "models": [], "has_more": False})


class _Anthropic(_Handler):
    """The Messages API."""

    def do_POST(self) -> None:
        body = self.body()
        path = self.path.split("?")[0]
        if path.endswith("/count_tokens"):
            self.send_json({"input_tokens": 42})
        elif path == "/v1/messages":
            self._answer(body)
        else:
            self.send_json({"type": "error", "error": {"type": "not_found_error", "message": "not served"}}, 404)

    def _answer(self, body: dict[str, Any]) -> None:
        content = self._decide(body)
        stop = "tool_use" if content[0]["type"] == "tool_use" else "end_turn"
        usage = {
            "input_tokens": 42,
            "output_tokens": 1,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
        }
        message = {
            "id": f"msg_{next(self.ids)}",
            "type": "message",
            "role": "assistant",
            "model": body.get("model", "scripted"),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage,
        }
        if not body.get("stream"):
            self.send_json(message | {"content": content, "stop_reason": stop})
            return
        self.start_events()
        self.event("message_start", message=message)
        for index, block in enumerate(content):
            self._block(index, block)
        delta = {"stop_reason": stop, "stop_sequence": None}
        self.event("message_delta", delta=delta, usage={"output_tokens": 12})
        self.event("message_stop")

    def _block(self, index: int, block: dict[str, Any]) -> None:
        if block["type"] == "text":
            empty, delta = block | {"text": ""}, {"type": "text_delta", "text": block["text"]}
        else:
            empty = block | {"input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        self.event("content_block_start", index=index, content_block=empty)
        self.event("content_block_delta", index=index, delta=delta)
        self.event("content_block_stop", index=index)

    def _decide(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        asked = [message for message in body.get("messages", ()) if message["role"] == "user"]
        last = asked[-1]["content"] if asked else ""
        blocks = [{"type": "text", "text": last}] if isinstance(last, str) else last
        if any(block.get("type") == "tool_result" for block in blocks):
            return [{"type": "text", "text": "done, the tool has answered"}]
        texts = [block["text"] for block in blocks if block.get("type") == "text"]
        text = "\n".join(told for told in texts if not told.lstrip().startswith("<system-reminder>"))
        found = list(COMMAND.finditer(text))
        if not found or not body.get("tools"):
            return [{"type": "text", "text": "echo: " + text.strip()[-80:]}]
        verb, argument = found[-1].group(1), found[-1].group(2).strip()
        if verb == "SLEEP":
            time.sleep(min(float(argument), LONGEST_SLEEP_S))
            return [{"type": "text", "text": "slept"}]
        name, told = "Bash", {"command": argument, "description": "a scripted command"}
        if verb == "BG":
            told |= {"run_in_background": True}
        if verb == "TOOL":
            name, _, arguments = argument.partition(" ")
            told = json.loads(arguments or "{}")
        return [{"type": "tool_use", "id": f"toolu_{next(self.ids):020d}", "name": name, "input": told}]


class _OpenAI(_Handler):
    """The Responses API."""

    def do_POST(self) -> None:
        body = self.body()
        if not self.path.split("?")[0].endswith("/responses"):
            self.send_json({}, 404)
            return
        self.start_events()
        base = {
            "id": f"resp_{next(self.ids)}",
            "object": "response",
            "created_at": int(time.time()),
            "model": body.get("model"),
            "status": "in_progress",
            "output": [],
        }
        self.event("response.created", response=base)
        item = self._item(body)
        self.event("response.output_item.added", output_index=0, item=item | {"status": "in_progress"})
        for delta in self._deltas(item):
            self.event("response.output_text.delta", item_id=item["id"], output_index=0, content_index=0, delta=delta)
        self.event("response.output_item.done", output_index=0, item=item)
        usage = {
            "input_tokens": 10,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 5,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 15,
        }
        self.event("response.completed", response=base | {"status": "completed", "output": [item], "usage": usage})

    def _deltas(self, item: dict[str, Any]) -> Iterator[str]:
        if item["type"] == "message":
            yield item["content"][0]["text"]

    def _item(self, body: dict[str, Any]) -> dict[str, Any]:
        user, tool_said = self._last(body)
        found = COMMAND.search(user)
        tools = tool_schemas(body)
        if tool_said is not None:
            return self._message(f"tool said: {tool_said[:300]}")
        if found is None or not tools:
            return self._message(f"echo: {user[-200:]}" if tools else "a title")
        verb, argument = found.group(1), found.group(2).strip()
        if verb == "SLEEP":
            time.sleep(min(float(argument), LONGEST_SLEEP_S))
            return self._message("slept")
        if verb == "TOOL":
            name, _, arguments = argument.partition(" ")
            return self._call(name, json.loads(arguments or "{}"))
        name = next(name for name in SHELLS if name in tools)
        return self._call(name, self._shell_arguments(name, tools[name], argument))

    def _shell_arguments(self, name: str, schema: dict[str, Any], command: str) -> dict[str, Any]:
        properties = schema.get("properties", {})
        if name == "exec_command":
            return {"cmd": command} | ({"yield_time_ms": 1000} if "yield_time_ms" in properties else {})
        is_list = properties.get("command", {}).get("type") == "array"
        return {"command": ["bash", "-lc", command] if is_list else command}

    def _last(self, body: dict[str, Any]) -> tuple[str, str | None]:
        """The newest text of the person, and what a tool said after it."""
        user, tool_said = "", None
        items = body.get("input")
        for item in items if isinstance(items, list) else [{"role": "user", "content": items}]:
            kind = item.get("type", "message")
            if kind == "message" and item.get("role") == "user":
                text = _text_of(item.get("content"))
                if not text.lstrip().startswith("<"):  # what Codex tells of its surroundings
                    user, tool_said = text, None
            elif kind.endswith("_output"):
                tool_said = _text_of(item.get("output"))
        return user, tool_said

    def _message(self, text: str) -> dict[str, Any]:
        content = [{"type": "output_text", "text": text, "annotations": []}]
        return {
            "id": f"msg_{next(self.ids)}",
            "type": "message",
            "status": "completed",
            "role": "assistant",
            "content": content,
        }

    def _call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        number = next(self.ids)
        return {
            "id": f"fc_{number}",
            "type": "function_call",
            "status": "completed",
            "call_id": f"call_{number}",
            "name": name,
            "arguments": json.dumps(arguments),
        }


def _text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(part.get("text", "") for part in content if isinstance(part, dict))
    return json.dumps(content)


def anthropic() -> ModelServer:
    return ModelServer(_Anthropic)


def openai() -> ModelServer:
    return ModelServer(_OpenAI)
