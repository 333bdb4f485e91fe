import pytest

from acpmux.wire import jsonrpc


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1}}', jsonrpc.Request(b"1", "m", b'{"a":1}')),
        (b'{"id":"1","method":"m"}', jsonrpc.Request(b'"1"', "m", b"")),
        (b'{"method":"m","params":[1, 2]}', jsonrpc.Notification("m", b"[1, 2]")),
        (b'{"id":7,"result":null}', jsonrpc.Response(b"7", True, b"null")),
        (b'{"id":null,"result":{}}', jsonrpc.Response(b"null", True, b"{}")),
        (b'{"id":7,"error":{"code":1}}', jsonrpc.Response(b"7", False, b'{"code":1}')),
        (b'{"id":7,"error":null,"result":3}', jsonrpc.Response(b"7", True, b"3")),
    ],
)
def test_each_form_is_told_apart(line: bytes, message: jsonrpc.Message) -> None:
    assert jsonrpc.decode(line) == message


@pytest.mark.parametrize(
    "payload",
    [
        b'{"n":123456789012345678901234567890,"f":1.50e+3,"z":null}',
        b'{"b":1, "a" : [ 1,2 ],"\\u00e9":"\\u00e9"}',
        b'{"t":"\\ud800 lone","u":"\\udc00"}',
        b'{"deep":[[[[[[[[[[1]]]]]]]]]]}',
    ],
)
def test_payload_survives_byte_for_byte(payload: bytes) -> None:
    line = b'{"jsonrpc":"2.0","id":5,"method":"x/y","params":' + payload + b"}"
    message = jsonrpc.decode(line)
    assert isinstance(message, jsonrpc.Request)
    assert message.params == payload
    assert jsonrpc.encode_request(b"5", "x/y", payload) == line


@pytest.mark.parametrize(
    "line", [b"", b"[]", b"{}", b"7", b"nonsense", b"\xff\xfe", b'{"id":1}', b'{"method":5}', b"[" * 200_000, b'{"a":']
)
def test_what_is_no_message_says_why(line: bytes) -> None:
    with pytest.raises(jsonrpc.NotAMessage, match=r"."):
        jsonrpc.decode(line)


def test_members_keep_order_and_bytes_with_lone_surrogates() -> None:
    raw = b'{ "b" : "\\ud800" , "a":1.0, "c":{"x":null} }'
    assert list(jsonrpc.members(raw).items()) == [("b", b'"\\ud800"'), ("a", b"1.0"), ("c", b'{"x":null}')]
