import json

import pytest

from acpmux.model.session import McpServer
from acpmux.wire import acp


def test_session_id_is_replaced_and_nothing_else() -> None:
    params = b'{"z":1e5,"sessionId":"theirs","update":{"sessionId":"inner","n":null}}'
    assert acp.replace_session_id(params, "ours") == params.replace(b'"theirs"', b'"ours"')


def test_meta_keeps_what_is_there() -> None:
    merged = acp.merge_meta(b'{"_meta":{"claude":{"k":1e2}},"update":{}}', {"seq": 3})
    assert merged == b'{"_meta":{"claude":{"k":1e2},"acpmux":{"seq": 3}},"update":{}}'


def test_meta_of_another_shape_is_replaced() -> None:
    assert json.loads(acp.merge_meta(b'{"_meta":null}', {"seq": 3})) == {"_meta": {"acpmux": {"seq": 3}}}


@pytest.mark.parametrize("junk", [b"", b"null", b"[]", b"7", b'{"update":7}', b'{"update":{"sessionUpdate":5}}', b"{"])
def test_update_of_another_shape_has_no_facts(junk: bytes) -> None:
    assert acp.parse_update(junk) == acp.UpdateFacts("")


def test_permission_without_usable_options_has_none() -> None:
    facts = acp.parse_permission(
        b'{"toolCall":{"title":5},"options":[1,{"optionId":"a"},{"optionId":"b","kind":"allow_once"}]}'
    )
    assert facts.title == "a tool call"
    assert [option.option_id for option in facts.options] == ["b"]


def test_session_reply_tells_mode_options_and_the_modes_own_option() -> None:
    options = [{"id": "m", "category": "mode", "currentValue": "plan"}, {"id": "fast", "currentValue": True}]
    reply = acp.parse_session_reply(
        json.dumps({"sessionId": "x", "modes": {"currentModeId": "plan"}, "configOptions": options}).encode()
    )
    assert (reply.agent_session_id, reply.mode, reply.mode_option) == ("x", "plan", "m")
    assert reply.values == {"m": b'"plan"', "fast": b"true"}


@pytest.mark.parametrize("junk", [b"null", b"{}", b"[]", b'{"modes":7,"configOptions":{}}'])
def test_empty_session_reply_has_no_facts(junk: bytes) -> None:
    reply = acp.parse_session_reply(junk)
    assert (reply.agent_session_id, reply.mode, reply.values) == (None, None, {})


def test_capabilities_are_those_told() -> None:
    told = {"protocolVersion": 1, "agentCapabilities": {"loadSession": True, "sessionCapabilities": {"resume": {}}}}
    assert acp.parse_initialize(json.dumps(told).encode()) == acp.Capabilities(1, True, True)
    assert acp.parse_initialize(b"{}") == acp.Capabilities(1, False, False)


def test_servers_are_told_in_order_with_their_environment() -> None:
    params = json.loads(acp.new_params("/w", (McpServer("a", "npx", ("-y",), (("K", "v"),)), McpServer("b", "x"))))
    assert [server["name"] for server in params["mcpServers"]] == ["a", "b"]
    assert params["mcpServers"][0]["env"] == [{"name": "K", "value": "v"}]
