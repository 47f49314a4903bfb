"""What a line says of results and arguments."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.guards.redaction import KINDS, Redactor
from app.methods.described import CUT, MAX_BYTES, MAX_READ, MAX_TEXT, content_types, shown
from app.observability import logs
from app.protocol.messages import ServerMessages, text_content, with_meta
from tests.support.cases import rows

MESSAGES = ServerMessages({"name": "s", "version": "1"})
KEY = "ghp_" + "aB3dE5gH7j" * 4


def encoded(*blocks: dict[str, Any], structured: Any = None) -> bytes:
    return MESSAGES.tool_result(
        orjson.dumps(blocks), structured=None if structured is None else orjson.dumps(structured)
    )


@rows(
    "result, expected",
    ("a text", encoded({"type": "text", "text": "t"}), ["text"]),
    (
        "a text and its data",
        encoded({"type": "text", "text": '{"a":"b"}'}, structured={"a": "b"}),
        ["text", "structured"],
    ),
    ("two texts", encoded(*[{"type": "text", "text": "t"}] * 2), ["text"]),
    (
        "several kinds",
        encoded({"type": "image", "data": ""}, {"type": "text", "text": "t"}, {"type": "resource"}),
        ["image", "text", "resource"],
    ),
    ("no block", encoded(), []),
    (
        "a text that looks like more",
        encoded({"type": "text", "text": '"}],"structuredContent":1,{"type":"image"}]'}),
        ["text"],
    ),
    ("data that looks like blocks", encoded(structured={"type": "image"}), ["structured"]),
    ("a long text", encoded({"type": "text", "text": '"' * 20_000}), ["text"]),
    ("a question", MESSAGES.input_required({}, "state"), []),
    ("kinds that there are not", encoded({"type": "x" * 9999}, {"type": "\n"}), ["other"]),
    ("no kind", b'{"content":[1]}', ["other"]),
    ("no result", b"[]", ["other"]),
    ("no JSON", b'{"content', ["other"]),
    ("a kept result", with_meta(MESSAGES.tool_result(text_content("t")), b',"x":1}}'), ["text"]),
)
def test_the_kinds_of_a_result_are_told(result: bytes, expected: list[str]) -> None:
    assert content_types(result) == expected


@given(st.text(), st.booleans())
def test_any_text_is_one_text(text: str, structured: bool) -> None:
    text = text.encode("utf-8", "replace").decode()
    result = MESSAGES.tool_result(text_content(text), structured=b"1" if structured else None)

    assert content_types(result) == (["text", "structured"] if structured else ["text"])


@pytest.fixture
def masking(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log's redaction as shipped."""
    monkeypatch.setattr(logs, "_redact", Redactor(KINDS).data)


@rows(
    "arguments, expected",
    ("plain ones", {"a": 1, "b": [True, None, 1.5]}, {"a": 1, "b": [True, None, 1.5]}),
    ("a long text", {"a": "ab " * 100}, {"a": ("ab " * 100)[:MAX_TEXT] + CUT}),
    ("a very long text", {"a": "a" * (MAX_READ + 1)}, {"a": CUT}),
    ("a very long key", {"a" * (MAX_READ + 1): 1}, {CUT: 1}),
    ("deep ones", {"a": {"b": {"c": {"d": {"e": 1}}}}}, {"a": {"b": {"c": {"d": CUT}}}}),
    ("a large number", {"a": 1 << 70}, {"a": CUT}),
    ("a secret", {"a": KEY}, {"a": "[secret]"}),
    ("a name of a secret", {"password": "hunter2"}, {"password": "[secret]"}),
    ("too much of all", {str(n): "ab " * 60 for n in range(20)} | {"l": ["ab " * 60] * 20}, CUT),
)
@pytest.mark.usefixtures("masking")
def test_arguments_are_shown_masked_and_bounded(arguments: dict[str, Any], expected: Any) -> None:
    found = shown(arguments)
    if expected == CUT:
        found = CUT if len(orjson.dumps(found)) <= MAX_BYTES else found
    assert found == expected


def test_many_members_are_cut() -> None:
    found = shown({str(number): number for number in range(50)} | {"list": list(range(50))})
    many = shown({"list": list(range(50))})

    assert len(found) == 21 and found[CUT] == CUT
    assert many["list"][-1] == CUT and len(many["list"]) == 21


@pytest.mark.usefixtures("masking")
@pytest.mark.parametrize("before", range(MAX_TEXT - 60, MAX_TEXT + 1, 7))
def test_no_half_of_a_secret_is_shown(before: int) -> None:
    """What is cut was masked before."""
    text = "x " * (before // 2) + KEY + " y" * 400

    assert KEY[:12] not in str(shown({"a": text}))
    assert KEY[:12] not in str(shown({text: "a"}))


def test_what_cannot_be_masked_is_withheld(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: Any) -> Any:
        raise RuntimeError

    monkeypatch.setattr(logs, "_redact", fails)

    assert shown({"a": KEY}) == logs.WITHHELD


TEXTS = st.text(max_size=30)
VALUES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS


@given(
    st.dictionaries(
        TEXTS,
        st.recursive(
            VALUES,
            lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
            max_leaves=30,
        ),
    )
)
def test_whatever_comes_has_a_bounded_form(arguments: dict[str, Any]) -> None:
    assert len(logs.encoded(shown(arguments))) <= MAX_BYTES


def test_half_a_character_is_shown_escaped() -> None:
    assert b"\\ud800" in logs.encoded(shown({"a": "\ud800"}))
