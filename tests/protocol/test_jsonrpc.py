"""Envelopes: what is read, what is refused and with which id."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.protocol import jsonrpc
from app.protocol.errors import InvalidRequest, ParseError
from app.protocol.jsonrpc import BadEnvelope, Message

NOT_JSON = {
    "empty": b"",
    "white space": b" \n",
    "cut off": b'{"jsonrpc":"2.0"',
    "trailing garbage": b'{"jsonrpc":"2.0","id":1,"method":"x"} {}',
    "invalid UTF-8": b'{"jsonrpc":"2.0","id":1,"method":"\xff"}',
    "a byte order mark": b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"x"}',
    "UTF-16": '{"jsonrpc":"2.0"}'.encode("utf-16"),
    "NaN": b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":NaN}}',
    "Infinity": b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":-Infinity}}',
    "a number beyond every float": b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":1e999}}',
    "a number of 5,000 digits": b'{"a":' + b"1" * 5000 + b"}",
    "a lone surrogate": b'{"jsonrpc":"2.0","id":1,"method":"\\ud800"}',
    "nesting of 100,000": b"[" * 100_000 + b"]" * 100_000,
    "nesting of 201": b'{"a":' * 201 + b"1" + b"}" * 201,
}

# What is not a request or notification, and the id that can still be read from it.
BAD_ENVELOPES: dict[str, tuple[Any, Any]] = {
    "an array": ([], None),
    "a batch": ([{"jsonrpc": "2.0", "id": 1, "method": "x"}], None),
    "a string": ("x", None),
    "null": (None, None),
    "no jsonrpc": ({"id": 1, "method": "x"}, 1),
    "jsonrpc 1.0": ({"jsonrpc": "1.0", "id": "a", "method": "x"}, "a"),
    "no method": ({"jsonrpc": "2.0", "id": 2}, 2),
    "a method that is a number": ({"jsonrpc": "2.0", "id": 2, "method": 1}, 2),
    "id null": ({"jsonrpc": "2.0", "id": None, "method": "x"}, None),
    "id true": ({"jsonrpc": "2.0", "id": True, "method": "x"}, None),
    "id 1.5": ({"jsonrpc": "2.0", "id": 1.5, "method": "x"}, None),
    "id []": ({"jsonrpc": "2.0", "id": [], "method": "x"}, None),
    "params array": ({"jsonrpc": "2.0", "id": 3, "method": "x", "params": [1]}, 3),
    "params text": ({"jsonrpc": "2.0", "id": 3, "method": "x", "params": "a"}, 3),
    "a response": ({"jsonrpc": "2.0", "id": 4, "result": {}}, None),
    "an error response": ({"jsonrpc": "2.0", "id": 4, "error": {}}, None),
}

GOOD_IDS: dict[str, tuple[bytes, Any]] = {
    "zero": (b"0", 0),
    "negative": (b"-1", -1),
    "a digit as text": (b'"1"', "1"),
    "empty text": (b'""', ""),
    "a whole float": (b"1.0", 1),
    "beyond 53 bits": (b"9007199254740993", 9007199254740993),
    "beyond 64 bits": (b"1" + b"0" * 40, 10**40),
}


@pytest.mark.parametrize("body", NOT_JSON.values(), ids=NOT_JSON.keys())
def test_what_is_not_strict_json_is_a_parse_error_without_an_id(body: bytes) -> None:
    with pytest.raises(BadEnvelope) as raised:
        jsonrpc.parse(body)
    assert isinstance(raised.value.error, ParseError)
    assert raised.value.id is None


@pytest.mark.parametrize(("value", "id"), BAD_ENVELOPES.values(), ids=BAD_ENVELOPES.keys())
def test_json_that_is_no_request_is_invalid_and_echoes_the_id_it_has(value: Any, id: Any) -> None:
    with pytest.raises(BadEnvelope) as raised:
        jsonrpc.parse(json.dumps(value).encode())
    assert isinstance(raised.value.error, InvalidRequest)
    assert raised.value.id == id


@pytest.mark.parametrize(("text", "id"), GOOD_IDS.values(), ids=GOOD_IDS.keys())
def test_an_id_keeps_its_value_and_type(text: bytes, id: Any) -> None:
    message = jsonrpc.parse(b'{"jsonrpc":"2.0","method":"x","id":' + text + b"}")
    assert message.id == id
    assert message.id is not None
    assert type(message.id) is type(id)
    echoed = json.loads(jsonrpc.result_response(id, b"{}"))["id"]
    assert echoed == id
    assert type(echoed) is type(id)


def test_a_message_without_an_id_is_a_notification() -> None:
    assert jsonrpc.parse(b'{"jsonrpc":"2.0","method":"tools/list"}') == Message(
        None, "tools/list", None
    )


def test_of_equal_keys_the_last_one_counts() -> None:
    body = b'{"jsonrpc":"2.0","id":1,"method":"a","method":"b","params":{"x":1,"x":2}}'
    assert jsonrpc.parse(body) == Message(1, "b", {"x": 2})


def test_an_error_without_a_readable_id_has_no_id_member() -> None:
    error = InvalidRequest("no")
    assert "id" not in json.loads(jsonrpc.error_response(None, error))
    assert json.loads(jsonrpc.error_response("", error))["id"] == ""


@pytest.mark.parametrize("number", [2**53 + 1, 2**63, -(2**63) - 1, 2**64, 10**100, -(10**18)])
def test_integers_of_any_length_come_through_exactly(number: int) -> None:
    assert jsonrpc.loads(b'{"a":[%d]}' % number) == {"a": [number]}
    assert json.loads(jsonrpc.dumps({"a": number})) == {"a": number}


@given(st.integers())
def test_every_integer_comes_through_exactly(number: int) -> None:
    assert jsonrpc.loads(jsonrpc.dumps([number])) == [number]


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text("abc"), inner),
    max_leaves=20,
)


@given(json_values)
def test_what_is_written_is_read_back(value: Any) -> None:
    assert jsonrpc.loads(jsonrpc.dumps(value)) == value


@given(st.binary(max_size=200))
def test_no_bytes_make_the_parser_fail_in_another_way(body: bytes) -> None:
    with contextlib.suppress(BadEnvelope):
        jsonrpc.parse(body)


@pytest.mark.parametrize("value", ["\ud800", {1}, object(), float])
def test_what_has_no_json_form_is_a_type_error(value: Any) -> None:
    with pytest.raises(TypeError):
        jsonrpc.dumps({"a": value})
