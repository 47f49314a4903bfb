"""What comes back from a client that was asked, and what may be asked of its model."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.protocol.asking import (
    BadAnswer,
    Retry,
    check_messages,
    elicit_action,
    listed_roots,
    parse_retry,
    sampled_message,
)
from app.protocol.errors import InvalidParams
from app.protocol.jsonrpc import canonical
from tests.support.cases import rows

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
TEXT = {"type": "text", "text": "Paris"}
USE = {"type": "tool_use", "id": "u1", "name": "add", "input": {}}
SAID = {"role": "assistant", "content": TEXT, "model": "m"}


@rows(
    "params, retry",
    ("nothing", {"name": "x"}, None),
    ("answers alone", {"inputResponses": {"a": {}}}, Retry({"a": {}}, None)),
    ("state alone", {"requestState": "s"}, Retry({}, "s")),
    ("both", {"inputResponses": {}, "requestState": "s"}, Retry({}, "s")),
)
def test_a_request_may_bring_something_back(params: dict[str, Any], retry: Retry | None) -> None:
    assert parse_retry(params) == retry


@rows(
    "params",
    ("answers null", {"inputResponses": None}),
    ("answers a list", {"inputResponses": []}),
    ("answers a text", {"inputResponses": "{}"}),
    ("an answer null", {"inputResponses": {"a": None}}),
    ("an answer a number", {"inputResponses": {"a": 12345}}),
    ("an answer a list", {"inputResponses": {"a": [{}]}}),
    ("state null", {"requestState": None}),
    ("state a number", {"requestState": 1}),
    ("state an object", {"inputResponses": {}, "requestState": {}}),
)
def test_what_has_the_wrong_shape_is_refused(params: dict[str, Any]) -> None:
    with pytest.raises(InvalidParams):
        parse_retry(params)


@pytest.mark.parametrize("action", ["accept", "decline", "cancel"])
def test_a_user_accepts_declines_or_cancels(action: str) -> None:
    assert elicit_action({"action": action, "content": {}, "more": 1}) == action


@pytest.mark.parametrize("answer", [{}, {"action": None}, {"action": "ACCEPT"}, {"action": ["x"]}])
def test_another_action_is_no_answer(answer: dict[str, Any]) -> None:
    with pytest.raises(BadAnswer):
        elicit_action(answer)


def test_a_sampled_message_keeps_what_is_known_of_it() -> None:
    answer = {**SAID, "stopReason": "endTurn", "_meta": {}, "content": {**TEXT, "extra": 1}}

    assert sampled_message(answer, with_tools=False) == {
        "role": "assistant",
        "content": [TEXT],
        "model": "m",
        "stopReason": "endTurn",
    }


@rows(
    "change, with_tools",
    ("no role", {"role": None}, True),
    ("the user's words", {"role": "user"}, True),
    ("no model", {"model": None}, True),
    ("a stop reason that is no text", {"stopReason": 1}, True),
    ("no content", {"content": None}, True),
    ("empty content", {"content": []}, True),
    ("a text", {"content": "Paris"}, True),
    ("a block of no kind", {"content": {"text": "x"}}, True),
    ("a text without text", {"content": {"type": "text"}}, True),
    ("an image without data", {"content": {"type": "image", "mimeType": "image/png"}}, True),
    ("a result of a tool", {"content": {"type": "tool_result", "toolUseId": "1"}}, True),
    ("a tool where none was offered", {"content": USE}, False),
    ("input that is no object", {"content": {**USE, "input": []}}, True),
    ("two uses of one id", {"content": [USE, USE]}, True),
    ("one bad block of two", {"content": [TEXT, 1]}, True),
)
def test_what_is_no_sampled_message_is_no_answer(change: dict[str, Any], with_tools: bool) -> None:
    with pytest.raises(BadAnswer):
        sampled_message({**SAID, **change}, with_tools=with_tools)


def test_roots_are_files() -> None:
    roots = [{"uri": "file:///a", "name": "A", "_meta": {}}, {"uri": "file:///b"}]
    assert listed_roots({"roots": roots}) == [
        {"uri": "file:///a", "name": "A"},
        {"uri": "file:///b"},
    ]
    bad: Any
    for bad in (
        None,
        {},
        [1],
        [{"uri": "https://x"}],
        [{"uri": 1}],
        [{"uri": "file:///", "name": 1}],
    ):
        with pytest.raises(BadAnswer):
            listed_roots({"roots": bad})


@given(st.dictionaries(st.sampled_from(["action", "role", "model", "content", "roots"]), JSON))
def test_no_answer_makes_a_reader_fail_in_another_way(answer: dict[str, Any]) -> None:
    readers: list[Any] = [
        elicit_action,
        listed_roots,
        lambda each: sampled_message(each, with_tools=True),
    ]
    for read in readers:
        with contextlib.suppress(BadAnswer):
            read(answer)


def _user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def _assistant(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


RESULT = {"type": "tool_result", "toolUseId": "u1", "content": []}
OTHER = {**RESULT, "toolUseId": "u2"}


@rows(
    "messages, is_balanced",
    ("a question", [_user(TEXT)], True),
    ("a use and its result", [_user(TEXT), _assistant(TEXT, USE), _user(RESULT)], True),
    (
        "two uses",
        [_assistant(USE, {**USE, "id": "u2"}), _user(OTHER, RESULT), _assistant(TEXT)],
        True,
    ),
    ("a use without a result", [_assistant(USE), _user(TEXT)], False),
    ("a use at the end", [_user(TEXT), _assistant(USE)], False),
    ("a result without a use", [_user(RESULT)], False),
    ("a result of another use", [_assistant(USE), _user(OTHER)], False),
    ("a result twice", [_assistant(USE), _user(RESULT, RESULT)], False),
    ("a result beside a text", [_assistant(USE), _user(RESULT, TEXT)], False),
    ("a result of the assistant", [_assistant(USE), _assistant(RESULT)], False),
    ("a use by the user", [_user(USE), _user(RESULT)], False),
)
def test_tool_uses_and_their_results_are_balanced(messages: Any, is_balanced: bool) -> None:
    if is_balanced:
        check_messages(messages)
    else:
        with pytest.raises(ValueError, match="message"):
            check_messages(messages)


@given(st.dictionaries(st.text(max_size=5), JSON, max_size=6))
def test_the_order_of_members_does_not_matter_to_the_canonical_form(value: dict[str, Any]) -> None:
    turned = dict(reversed(value.items()))

    assert canonical(turned) == canonical(value)
    assert canonical({**value, "new": 1 << 70}) == canonical({"new": 1 << 70, **turned})
