"""The header codec and the header plans of tools."""

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.protocol.errors import HeaderMismatch
from app.protocol.headers import (
    HeaderMap,
    InvalidAnnotation,
    check_parameters,
    decode_value,
    encode_value,
    mirrored_headers,
    mirrored_parameters,
)

text_values = st.text(st.characters(exclude_categories=["Cs"]))

DECODED: dict[str, tuple[bytes, str | None]] = {
    "plain": (b"us-west1", "us-west1"),
    "inner spaces and tabs": (b"a b\tc", "a b\tc"),
    "outer white space": (b" \ta ", "a"),
    "empty": (b"", ""),
    "non-ASCII text": (b"=?base64?SGVsbG8sIOS4lueVjA==?=", "Hello, 世界"),
    "padded text": (b"=?base64?IHBhZGRlZCA=?=", " padded "),
    "a line break": (b"=?base64?bGluZTEKbGluZTI=?=", "line1\nline2"),
    "a literal sentinel": (b"=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=", "=?base64?literal?="),
    "an encoded empty value": (b"=?base64??=", ""),
    "upper case marker": (b"=?BASE64?SGVsbG8=?=", "=?BASE64?SGVsbG8=?="),
    "no prefix": (b"SGVsbG8=", "SGVsbG8="),
    "no suffix": (b"=?base64?SGVsbG8=", "=?base64?SGVsbG8="),
    "markers that overlap": (b"=?base64?=", "=?base64?="),
    "bad padding": (b"=?base64?SGVsbG8?=", None),
    "bad alphabet": (b"=?base64?SGVs!!!bG8=?=", None),
    "URL-safe alphabet": (b"=?base64?_-8=?=", None),
    "trailing bits": (b"=?base64?SGVsbG9=?=", None),
    "white space inside": (b"=?base64?SGVs bG8=?=", None),
    "bytes that are not UTF-8": (b"=?base64?/w==?=", None),
    "raw UTF-8": ("données".encode(), None),
    "raw Latin-1": ("données".encode("latin-1"), None),
    "a control character": (b"a\x01b", None),
    "delete": (b"a\x7fb", None),
}


@pytest.mark.parametrize(("raw", "text"), DECODED.values(), ids=DECODED.keys())
def test_a_header_value_stands_for(raw: bytes, text: str | None) -> None:
    assert decode_value(raw) == text


@given(text_values)
def test_what_is_encoded_is_decoded(text: str) -> None:
    assert decode_value(encode_value(text)) == text


@given(text_values)
def test_an_encoded_value_is_safe_in_a_header(text: str) -> None:
    value = encode_value(text)
    assert all(byte in b"\t" or 0x20 <= byte < 0x7F for byte in value)
    assert value == value.strip()


@given(st.binary(max_size=60))
def test_base64_has_one_spelling(data: bytes) -> None:
    encoded = base64.b64encode(data)
    for other in (encoded.rstrip(b"="), encoded + b"=", encoded.replace(b"A", b"-")):
        if other != encoded:
            assert decode_value(b"=?base64?" + other + b"?=") is None


@given(st.binary(max_size=100))
def test_no_bytes_make_the_decoder_fail(raw: bytes) -> None:
    assert decode_value(raw) is None or isinstance(decode_value(raw), str)


def test_repeated_headers_are_joined_and_remembered() -> None:
    headers = HeaderMap([(b"a", b"1"), (b"b", b"2"), (b"a", b"3")])
    assert dict(headers) == {b"a": b"1, 3", b"b": b"2"}
    assert headers.repeated == {b"a"}
    assert HeaderMap([(b"a", b"1")]).repeated == frozenset()


def _schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def _marked(name: Any = "Region", **rest: Any) -> dict[str, Any]:
    return {"type": "string", "x-mcp-header": name, **rest}


INVALID: dict[str, dict[str, Any]] = {
    "empty": _schema(a=_marked("")),
    "a space": _schema(a=_marked("A B")),
    "a colon": _schema(a=_marked("A:B")),
    "not ASCII": _schema(a=_marked("é")),
    "a line break": _schema(a=_marked("A\r\nB")),
    "a trailing line break": _schema(a=_marked("A\n")),
    "not text": _schema(a=_marked(1)),
    "type number": _schema(a=_marked(type="number")),
    "two types": _schema(a=_marked(type=["string", "null"])),
    "no type": _schema(a={"x-mcp-header": "A"}),
    "an object": _schema(a=_marked(type="object")),
    "equal but for case": _schema(a=_marked("Region"), b=_marked("region")),
    "an unsafe integer": _schema(a=_marked(type="integer", maximum=2**53)),
    "the root": {"type": "object", "x-mcp-header": "A"},
    "items": _schema(a={"type": "array", "items": _marked()}),
    "anyOf": _schema(a={"anyOf": [_marked(), {"type": "null"}]}),
    "oneOf": {"type": "object", "oneOf": [_schema(a=_marked())]},
    "allOf": {"type": "object", "allOf": [_schema(a=_marked())]},
    "not": {"type": "object", "not": _schema(a=_marked())},
    "if": {"type": "object", "if": _schema(a=_marked())},
    "$defs": {**_schema(a={"$ref": "#/$defs/A"}), "$defs": {"A": _marked()}},
    "patternProperties": {"type": "object", "patternProperties": {"a": _marked()}},
    "additionalProperties": {"type": "object", "additionalProperties": _marked()},
}


@pytest.mark.parametrize("schema", INVALID.values(), ids=INVALID.keys())
def test_an_annotation_that_clients_would_refuse_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(InvalidAnnotation):
        mirrored_parameters(schema)


def test_properties_named_like_keywords_are_properties() -> None:
    schema = _schema(items=_marked("A"), anyOf=_schema(properties=_marked("B")))
    assert [parameter.path for parameter in mirrored_parameters(schema)] == [
        ("anyOf", "properties"),
        ("items",),
    ]


def test_a_schema_that_stands_in_two_places_is_looked_at_in_both() -> None:
    shared = _marked("A")
    with pytest.raises(InvalidAnnotation):
        mirrored_parameters({**_schema(a=shared), "anyOf": [_schema(a=shared)]})


def test_annotations_in_data_are_data() -> None:
    schema = _schema(a={"type": "object", "default": {"x-mcp-header": "A"}})
    assert mirrored_parameters(schema) == ()


PLAN = mirrored_parameters(
    _schema(
        region=_marked("Region"),
        n={"type": "integer", "x-mcp-header": "N"},
        flag={"type": "boolean", "x-mcp-header": "Flag"},
        p=_schema(q=_marked("Q")),
    )
)

Row = tuple[dict[str, Any], list[tuple[bytes, bytes]], bool]
AGREEMENT: dict[str, Row] = {
    "text": ({"region": "eu"}, [(b"region", b"eu")], True),
    "text without a header": ({"region": "eu"}, [], False),
    "text that differs": ({"region": "eu"}, [(b"region", b"us")], False),
    "text that differs by case": ({"region": "eu"}, [(b"region", b"EU")], False),
    "plain text sent as Base64": ({"region": "eu"}, [(b"region", b"=?base64?ZXU=?=")], True),
    "corrupt Base64": ({"region": "eu"}, [(b"region", b"=?base64?ZXU?=")], False),
    "a repeated header": ({"region": "eu"}, [(b"region", b"eu"), (b"region", b"eu")], False),
    "no value and no header": ({}, [], True),
    "null and no header": ({"region": None}, [], True),
    "null and a header": ({"region": None}, [(b"region", b"null")], False),
    "no value and a header": ({}, [(b"region", b"eu")], False),
    "empty text, empty header": ({"region": ""}, [(b"region", b"")], True),
    "empty text, no header": ({"region": ""}, [], False),
    "padded text, raw": ({"region": " p "}, [(b"region", b" p ")], False),
    "padded text, encoded": ({"region": " p "}, [(b"region", b"=?base64?IHAg?=")], True),
    "a sentinel, raw": ({"region": "=?base64?eA==?="}, [(b"region", b"=?base64?eA==?=")], False),
    "an integer": ({"n": 42}, [(b"n", b"42")], True),
    "a negative integer": ({"n": -7}, [(b"n", b"-7")], True),
    "42 as 42.0": ({"n": 42}, [(b"n", b"42.0")], True),
    "42.0 as 42": ({"n": 42.0}, [(b"n", b"42")], True),
    "42 as 42.5": ({"n": 42}, [(b"n", b"42.5")], False),
    "42 as 42.0000000001": ({"n": 42}, [(b"n", b"42.0000000001")], False),
    "42 as 4.2e1": ({"n": 42}, [(b"n", b"4.2e1")], False),
    "42 as +42": ({"n": 42}, [(b"n", b"+42")], False),
    "42 as 0x2a": ({"n": 42}, [(b"n", b"0x2a")], False),
    "42 as words": ({"n": 42}, [(b"n", b"abc")], False),
    "42 as nothing": ({"n": 42}, [(b"n", b"")], False),
    "2**53+1 as 2**53": ({"n": 2**53 + 1}, [(b"n", b"9007199254740992")], False),
    "2**53 as itself": ({"n": 2**53}, [(b"n", b"9007199254740992")], False),
    "2**53-1 as itself": ({"n": 2**53 - 1}, [(b"n", b"9007199254740991")], True),
    "zero without a header": ({"n": 0}, [], False),
    "true": ({"flag": True}, [(b"flag", b"true")], True),
    "true as True": ({"flag": True}, [(b"flag", b"True")], False),
    "true as 1": ({"flag": True}, [(b"flag", b"1")], False),
    "false": ({"flag": False}, [(b"flag", b"false")], True),
    "false without a header": ({"flag": False}, [], False),
    "nested": ({"p": {"q": "x"}}, [(b"q", b"x")], True),
    "nested without a header": ({"p": {"q": "x"}}, [], False),
    "a parent that is null": ({"p": None}, [], True),
    "a parent that is a number": ({"p": 1}, [], True),
    "a list for an integer, no header": ({"n": [1]}, [], True),
    "a list for an integer and a header": ({"n": [1]}, [(b"n", b"1")], False),
    "a header that nobody declared": ({}, [(b"other", b"1")], True),
}


@pytest.mark.parametrize(("arguments", "sent", "agrees"), AGREEMENT.values(), ids=AGREEMENT.keys())
def test_parameter_headers_say_what_the_body_says(
    arguments: dict[str, Any], sent: list[tuple[bytes, bytes]], agrees: bool
) -> None:
    headers = HeaderMap([(b"mcp-param-" + name, value) for name, value in sent])
    if agrees:
        check_parameters(PLAN, headers, arguments)
    else:
        with pytest.raises(HeaderMismatch):
            check_parameters(PLAN, headers, arguments)


def test_response_headers_repeat_the_parameters_unless_they_are_long() -> None:
    arguments = {"region": "é", "n": 3.0, "flag": False, "p": {"q": "x" * 1025}}
    assert mirrored_headers(PLAN, arguments) == [
        (b"mcp-param-flag", b"false"),
        (b"mcp-param-n", b"3"),
        (b"mcp-param-region", b"=?base64?w6k=?="),
    ]


@given(text_values, st.integers(-(2**53) + 1, 2**53 - 1), st.booleans())
def test_what_a_response_repeats_would_pass_as_a_request(text: str, n: int, flag: bool) -> None:
    arguments = {"region": text[:200], "n": n, "flag": flag}
    sent = mirrored_headers(PLAN, arguments)
    check_parameters(PLAN, HeaderMap(sent), arguments)
