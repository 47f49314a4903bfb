"""Questions to clients of older revisions: requests of the server, answered by a POST."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.sessions.conftest import ADA, CONFIG, EVE, TOOLS, Open
from tests.support.cases import rows
from tests.support.server import ServerFactory

ASK = "elicitation/create"
FORM = {"action": "accept", "content": {"city": "Oslo", "days": 2, "seat": "a"}}


@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25"])
def test_a_form_is_filled_in_while_the_call_waits(talk: Open, version: str) -> None:
    conversation = talk(version)
    answer = conversation.call("book", {"who": "Ada"}, answers={ASK: FORM})
    assert '"city":"Oslo"' in answer.text and '"days":2' in answer.text
    (asked,) = [each for each in conversation.said if each.get("method") == ASK]
    assert asked["params"]["message"] == "A trip for Ada?"
    seat = asked["params"]["requestedSchema"]["properties"]["seat"]
    if version >= "2025-11-25":
        assert [each["title"] for each in seat["oneOf"]] == ["Aisle", "Window"]
        assert asked["params"]["mode"] == "form"
    else:
        assert seat["enumNames"] == ["Aisle", "Window"] and "mode" not in asked["params"]
    assert len(asked["id"]) >= 32


@rows(
    "said, expected",
    ("declined", {"action": "decline"}, "decline"),
    ("dismissed", {"action": "cancel"}, "cancel"),
    ("an error", {"code": -32603, "message": "no"}, "cancel"),
    ("a refusal", {"code": -1, "message": "no"}, "decline"),
)
def test_a_no_reaches_the_tool(talk: Open, said: Any, expected: str) -> None:
    answer = talk().call("book", {"who": "Ada"}, answers={ASK: said})
    assert f'"action":"{expected}"' in answer.text


def test_an_answer_that_does_not_fit_is_asked_for_again(talk: Open) -> None:
    answers = iter(
        [
            {"action": "accept", "content": {"days": 2}},
            {"action": "accept", "content": {"city": "Oslo", "seat": "roof"}},
            {"action": "perhaps"},
            FORM,
        ]
    )
    conversation = talk()
    answer = conversation.call("book", {"who": "Ada"}, answers={ASK: lambda _: next(answers)})
    assert '"city":"Oslo"' in answer.text
    asked = [each["params"]["message"] for each in conversation.said if each.get("method") == ASK]
    assert len(asked) == 4 and "did not fit" in asked[1]


def test_two_questions_at_once_and_an_effect_once(talk: Open) -> None:
    conversation = talk()
    cities = {"First?": "Rome", "Second?": "Bern"}
    answer = conversation.call(
        "both",
        answers={
            ASK: lambda request: {
                "action": "accept",
                "content": {"city": cities[request["params"]["message"]]},
            }
        },
    )
    assert answer.text == '["once","Rome","Bern"]'


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_the_model_and_the_roots_of_a_client_can_be_asked_in_every_revision(
    talk: Open, version: str
) -> None:
    conversation = talk(version)
    said = {"role": "assistant", "content": {"type": "text", "text": "Hm."}, "model": "m"}
    assert (
        conversation.call("think", {"about": "x"}, answers={"sampling/createMessage": said}).text
        == "Hm."
    )
    roots = {"roots": [{"uri": "file:///home", "name": "home"}]}
    assert "file:///home" in conversation.call("folders", answers={"roots/list": roots}).text
    refused = {"code": -1, "message": "not now"}
    failed = conversation.call("think", {"about": "x"}, answers={"sampling/createMessage": refused})
    assert failed.result["isError"] and "not now" in failed.text


def test_a_url_can_be_asked_for_in_the_latest_alone(talk: Open) -> None:
    answer = talk().call("visit", answers={ASK: {"action": "accept"}})
    assert answer.text == "accept"
    assert talk("2025-06-18").call("visit").code == -32602


@rows(
    "capabilities",
    ("none", {}),
    ("another", {"roots": {}}),
    ("of the wrong type", {"elicitation": True}),
)
def test_who_did_not_declare_it_is_not_asked(talk: Open, capabilities: Any) -> None:
    answer = talk(capabilities=capabilities).call("book", {"who": "a"})
    assert answer.code == -32602 and "elicitation" in answer.last["error"]["message"]


def test_thinking_takes_neither_the_time_nor_the_room_of_the_call(talk: Open) -> None:
    """The deadline is 1 s, and one call may run at once."""
    conversation, other = talk(), talk()
    asked, answered = threading.Event(), threading.Event()

    def slowly(_: Any) -> Any:
        asked.set()
        assert answered.wait(5)
        return FORM

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(conversation.call, "book", {"who": "slow"}, answers={ASK: slowly})
        assert asked.wait(5)
        quick = other.call("book", {"who": "quick"}, answers={ASK: FORM})
        assert '"who":"quick"' in quick.text
        assert not threading.Event().wait(1.2)  # longer than the deadline
        answered.set()
        assert '"who":"slow"' in waiting.result(10).text


def test_a_question_that_nobody_answers_ends(talk: Open) -> None:
    conversation = talk()
    with conversation.stream("tools/call", {"name": "book", "arguments": {"who": "a"}}) as (
        _,
        found,
    ):
        messages = [event.message for event in found if event.message]
    assert messages[0]["method"] == ASK
    assert "Nobody has answered" in str(messages[-1]["result"])


def test_an_answer_counts_for_the_session_that_was_asked_alone(talk: Open) -> None:
    conversation, same_caller, stranger = talk(who=ADA), talk(who=ADA), talk(who=EVE)

    def others_first(request: Any) -> Any:
        for other in (same_caller, stranger):
            bad = {"action": "accept", "content": {"city": "Hell"}}
            response = other.post({"jsonrpc": "2.0", "id": request["id"], "result": bad})
            assert response.status_code == 202
        return FORM

    answer = conversation.call("book", {"who": "Ada"}, answers={ASK: others_first})
    assert "Oslo" in answer.text and "Hell" not in answer.text


@rows(
    "response",
    ("of nothing", {"jsonrpc": "2.0", "id": "ask-0", "result": {}}),
    ("with a number", {"jsonrpc": "2.0", "id": 1, "result": {}}),
    ("an error", {"jsonrpc": "2.0", "id": "x", "error": {"code": 1, "message": "m"}}),
)
def test_an_answer_to_nothing_is_taken_and_changes_nothing(talk: Open, response: Any) -> None:
    conversation = talk()
    assert conversation.post(response).status_code == 202
    conversation.token = None
    assert conversation.post(response).status_code == 400


def test_calls_that_wait_for_a_person_are_bounded(
    server_factory: ServerFactory, talk: Open
) -> None:
    config = {**CONFIG, "limits": {"concurrent_calls": 4}, "legacy": {"ask_timeout_s": 5}}
    server = server_factory(TOOLS, config)
    first = talk(server=server, who=ADA)
    params = {"name": "both", "arguments": {}}
    with first.stream("tools/call", params) as (_, found):
        next(each for each in found if each.message and "elicitation" in str(each.message))
        refused = talk(server=server, who=ADA).call("both")
        assert refused.result["isError"] and "wait for an answer" in refused.text
        form = {"action": "accept", "content": {"city": "Bern"}}
        other = talk(server=server, who=EVE).call("both", answers={ASK: form})
        assert "Bern" in other.text  # that one has room of its own


def test_a_question_holds_up_no_equal_call(talk: Open) -> None:
    """Of a tool whose results are kept: nobody waits for somebody else's user."""
    conversation, other = talk(who=ADA), talk(who=ADA)
    params = {"name": "kept", "arguments": {"ask": True}}
    with conversation.stream("tools/call", params) as (_, found):
        next(each for each in found if each.message and "elicitation" in str(each.message))
        form = {"action": "accept", "content": {"city": "Bern"}}
        assert "Bern" in other.call("kept", {"ask": True}, answers={ASK: form}).text
