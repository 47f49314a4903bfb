"""Calls that ask, from the first question to the result."""

import time
from pathlib import Path
from typing import Any

import pytest

from tests.asking.rounds import accept, ask, message, questions, state_of, use
from tests.support.cases import rows
from tests.support.client import McpClient, meta
from tests.support.server import ServerFactory, ServerProcess
from tests.support.waiting import eventually

TOOLS = Path(__file__).with_name("tools")

LOGIN = {
    "method": "elicitation/create",
    "params": {
        "mode": "form",
        "message": "Please provide your GitHub username",
        "requestedSchema": {
            "type": "object",
            "properties": {"name": {"type": "string", "minLength": 2}},
            "required": ["name"],
        },
    },
}


def test_a_tool_asks_and_goes_on_with_the_answer(client: McpClient) -> None:
    first = ask(client, "login")
    assert questions(first) == {"github_login": LOGIN}

    second = ask(client, "login", {}, {"github_login": accept(name="octocat")}, state_of(first))
    assert second.text == "Hello, octocat!"
    assert second.result["resultType"] == "complete"


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_decline_and_cancel_reach_the_tool_as_values(client: McpClient, action: str) -> None:
    first = ask(client, "login")
    second = ask(client, "login", {}, {"github_login": {"action": action}}, state_of(first))
    assert second.text == f"{action}: nobody is greeted"


def test_answers_without_state_are_taken(client: McpClient) -> None:
    reply = ask(client, "login", {}, {"github_login": accept(name="octocat"), "other": {}})
    assert reply.text == "Hello, octocat!"


def test_a_retry_may_have_the_same_id_and_the_state_may_be_used_again(client: McpClient) -> None:
    state = state_of(ask(client, "login", id=7))
    for name in ("one", "two"):
        reply = ask(client, "login", {}, {"github_login": accept(name=name)}, state, id=7)
        assert reply.text == f"Hello, {name}!"


def test_earlier_answers_and_effects_are_carried(client: McpClient) -> None:
    before = client.call("effects").value
    first = ask(client, "book")
    assert list(questions(first)) == ["who"]
    second = ask(client, "book", {}, {"who": accept(name="Ada")}, state_of(first))
    assert list(questions(second)) == ["trip"]
    assert questions(second)["trip"]["params"]["message"] == "Where does Ada go?"
    assert state_of(second) != state_of(first)

    # An answer of an earlier round cannot be replaced.
    answers = {"trip": accept(to="Oslo", nights=2), "who": accept(name="Eve")}
    third = ask(client, "book", {}, answers, state_of(second))
    assert third.value == {
        "name": "Ada",
        "trip": {"to": "Oslo", "nights": 2, "email": None},
        "number": before + 1,
    }
    assert client.call("effects").value == before + 1


def test_missing_answers_are_asked_again(client: McpClient) -> None:
    first = ask(client, "book")
    second = ask(client, "book", {}, {}, state_of(first))
    assert questions(second) == questions(first)
    third = ask(client, "book", {}, None, state_of(second))
    assert questions(third) == questions(first)


@rows(
    "answer, reason",
    ("no action", {"content": {"name": "octocat"}}, 'no "action"'),
    ("another action", {"action": "maybe"}, 'no "action"'),
    ("no content", {"action": "accept"}, "missing required name"),
    ("content null", {"action": "accept", "content": None}, "missing required name"),
    ("content a list", {"action": "accept", "content": ["octocat"]}, "must be an object"),
    ("wrong type", accept(name=12), "name: must be string, not integer"),
    ("too short", accept(name="x"), "name: must have at least 2 characters"),
    ("a nested value", accept(name={"name": "octocat"}), "name: must be string, not object"),
    ("an answer of a model", message(text="octocat"), 'no "action"'),
)
def test_an_answer_that_does_not_fit_is_asked_again_with_the_reason(
    client: McpClient, answer: dict[str, Any], reason: str
) -> None:
    first = ask(client, "login")
    second = ask(client, "login", {}, {"github_login": answer}, state_of(first))

    params = questions(second)["github_login"]["params"]
    assert params["message"].startswith(f"{LOGIN['params']['message']}\n\n")  # type: ignore[index]
    assert reason in params["message"]
    third = ask(client, "login", {}, {"github_login": accept(name="octocat")}, state_of(second))
    assert third.text == "Hello, octocat!"


def test_what_was_answered_well_is_kept_while_the_rest_is_asked_again(client: McpClient) -> None:
    first = ask(client, "everything")
    asked = questions(first)
    assert {key: each["method"] for key, each in asked.items()} == {
        "one": "elicitation/create",
        "two": "elicitation/create",
        "poem": "sampling/createMessage",
        "roots": "roots/list",
    }
    answers: dict[str, Any] = {
        "one": accept(name="Ada"),
        "two": accept(name=""),
        "poem": {"role": "assistant", "content": "no block", "model": "m"},
        "roots": {"roots": [{"uri": "https://not.a.file"}]},
    }
    second = ask(client, "everything", {}, answers, state_of(first))
    assert set(questions(second)) == {"two", "poem", "roots"}
    answers = {
        "two": {"action": "decline"},
        "poem": message(text="Roses"),
        "roots": {"roots": [{"uri": "file:///home"}]},
    }
    third = ask(client, "everything", {}, answers, state_of(second))
    assert third.value == ["accept decline", "Roses", "file:///home"]


def test_an_answer_counts_for_the_question_that_was_asked(client: McpClient) -> None:
    first = ask(client, "restless")
    second = ask(client, "restless", {}, {"who": accept(name="Ada")}, state_of(first))
    # The tool asks another question now: the old answer was not given to it.
    assert questions(second)["who"] != questions(first)["who"]


def test_a_tool_that_never_has_enough_is_stopped(client: McpClient) -> None:
    reply = ask(client, "restless")
    for _ in range(24):
        reply = ask(client, "restless", {}, {}, state_of(reply))
    reply = ask(client, "restless", {}, {}, state_of(reply))
    assert reply.is_error
    assert "25 rounds" in reply.text


def test_what_is_carried_is_bounded(client: McpClient) -> None:
    assert questions(ask(client, "hoard", {"size": 20_000}))
    reply = ask(client, "hoard", {"size": 33_000})
    assert reply.is_error
    assert "32,768" in reply.text


def test_a_pause_that_is_swallowed_is_an_error(server: ServerProcess) -> None:
    reply = ask(server.client, "swallow")
    assert reply.is_error
    assert reply.text.startswith("The tool asked a question and did not wait for the answer.")
    line = server.wait_for_log(lambda log: log.get("error") == "SwallowedPause")
    assert line["tool"] == "swallow"


def test_finally_blocks_run_at_the_pause(client: McpClient) -> None:
    before = client.call("effects").value
    assert questions(ask(client, "tidy"))
    assert client.call("effects").value == before + 1


def test_the_log_says_how_a_call_ended_that_asked(server: ServerProcess) -> None:
    ask(server.client, "login", id="asks")
    line = server.wait_for_log(lambda log: log.get("request_id") == "asks")
    assert (line["outcome"], line["status"]) == ("input_required", 200)
    assert "GitHub" not in str(line)


def test_a_call_that_streams_can_end_with_a_question(client: McpClient) -> None:
    declared = meta(clientCapabilities={"elicitation": {}}, progressToken="p")
    reply = ask(client, "speak_first", meta_=declared)
    assert reply.streamed
    assert reply.notifications("notifications/progress")
    assert list(questions(reply)) == ["who"]


# -- what a client can be asked ------------------------------------------------------------------


@rows(
    "tool, capabilities, required",
    ("nothing declared", "login", {}, {"elicitation": {"form": {}}}),
    ("URLs alone", "login", {"elicitation": {"url": {}}}, {"elicitation": {"form": {}}}),
    ("forms alone", "connect", {"elicitation": {}}, {"elicitation": {"url": {}}}),
    ("no tools", "research", {"sampling": {}}, {"sampling": {"tools": {}}}),
    (
        "one of three is missing",
        "everything",
        {"elicitation": {}, "sampling": {}},
        {"elicitation": {"form": {}}, "sampling": {}, "roots": {}},
    ),
)
def test_a_client_that_cannot_be_asked_is_refused_before_the_tool_runs(
    client: McpClient, tool: str, capabilities: dict[str, Any], required: dict[str, Any]
) -> None:
    reply = ask(client, tool, capabilities=capabilities)
    assert reply.outcome == (400, -32021)
    assert reply.error["data"] == {"requiredCapabilities": required}


def test_a_tool_that_did_not_say_that_it_asks_fails_for_such_clients(client: McpClient) -> None:
    reply = ask(client, "undeclared", capabilities={})
    assert reply.is_error
    assert "(elicitation)" in reply.text
    assert questions(ask(client, "undeclared"))


def test_a_tool_can_look_whether_there_is_somebody_to_ask(client: McpClient) -> None:
    assert ask(client, "polite", capabilities={}).text == "nobody to ask"
    assert questions(ask(client, "polite"))


@pytest.mark.parametrize("how", ["secret", "link", "key", "same key"])
def test_what_must_not_be_asked_is_an_error_that_the_log_explains(
    server: ServerProcess, how: str
) -> None:
    reply = ask(server.client, "careless", {"how": how})
    assert reply.is_error
    assert reply.text.startswith("The tool failed because of an internal error.")
    id = reply.text.rpartition(" ")[2].rstrip(")")
    line = server.wait_for_log(lambda log: log.get("error_id") == id)
    assert line["error"] in ("FormError", "ValueError")


def test_asking_from_a_thread_is_an_error(server: ServerProcess) -> None:
    reply = ask(server.client, "from_thread")
    assert reply.is_error
    line = server.wait_for_log(lambda log: log.get("tool") == "from_thread" and "error" in log)
    assert line["error"] == "RuntimeError"
    assert "async def" in line["exception"]


@rows(
    "url, is_asked",
    ("https", "https://example.com/a?b=c", True),
    ("http on loopback", "http://127.0.0.1:8000/a", True),
    ("http elsewhere", "http://example.com", False),
    ("a user in it", "https://ada:pw@example.com", False),
    ("no host", "https:///a", False),
    ("another scheme", "javascript:alert(1)", False),
    ("a space", "https://example.com/a b", False),
    ("very long", "https://example.com/" + "a" * 2100, False),
)
def test_a_page_is_https(client: McpClient, url: str, is_asked: bool) -> None:
    reply = ask(client, "connect", {"url": url})
    if not is_asked:
        assert reply.is_error
        return
    (question,) = questions(reply).values()
    message = "Please connect your account."
    assert question["params"] == {"mode": "url", "message": message, "url": url}
    again = ask(client, "connect", {"url": url}, {"connect": accept(token="x")}, state_of(reply))
    assert again.text == "accept"


# -- sampling with tools -------------------------------------------------------------------------


def test_the_client_s_model_uses_a_tool_and_answers(client: McpClient) -> None:
    before = client.call("effects").value
    first = ask(client, "research")
    params = questions(first)["sum"]["params"]
    assert params["toolChoice"] == {"mode": "auto"}
    assert params["tools"][0]["name"] == "add"

    said = message(use("u1", a=2, b=3), use("u2", a=-1, b=0), use("u3", a="2"))
    second = ask(client, "research", {}, {"sum": said}, state_of(first))
    asked = questions(second)["sum.1"]["params"]
    assert asked["messages"][1] == {"role": "assistant", "content": said["content"]}
    results = asked["messages"][2]["content"]
    assert [(each["toolUseId"], each.get("isError", False)) for each in results] == [
        ("u1", False),
        ("u2", True),
        ("u3", True),
    ]
    assert [each["content"][0]["text"] for each in results] == [
        "5",
        "Only what is above zero.",
        "Invalid input: arguments: missing required b; a: must be integer, not string",
    ]

    third = ask(client, "research", {}, {"sum.1": message(text="It is 5.")}, state_of(second))
    assert third.text == "It is 5."
    assert client.call("effects").value == before + 2


def test_the_rounds_of_the_client_s_model_are_capped(client: McpClient) -> None:
    arguments = {"rounds": 1}
    first = ask(client, "research", arguments)
    answers = {"sum": message(use("u1", a=2, b=3))}
    second = ask(client, "research", arguments, answers, state_of(first))
    assert questions(second)["sum.1"]["params"]["toolChoice"] == {"mode": "none"}
    answers = {"sum.1": message(use("u2", a=2, b=3))}
    third = ask(client, "research", arguments, answers, state_of(second))
    assert third.is_error
    assert "after 1 rounds" in third.text


# -- the state -----------------------------------------------------------------------------------


def test_a_single_use_state_counts_once(client: McpClient) -> None:
    first = ask(client, "redeem")
    answers = {"who": accept(name="Ada")}
    assert ask(client, "redeem", {}, answers, state_of(first)).text == "redeemed by Ada"
    assert ask(client, "redeem", {}, answers, state_of(first)).outcome == (400, -32602)


def test_an_answer_to_a_single_use_question_needs_its_state(client: McpClient) -> None:
    assert questions(ask(client, "redeem", {}, {"who": accept(name="Ada")}))


def test_a_state_expires(server_factory: ServerFactory) -> None:
    config = {"tools": {"reload": False}, "execution": {"ask_ttl_s": 0.2}}
    client = server_factory(TOOLS, config).client
    asked_at = time.monotonic()  # its time begins after this
    state = state_of(ask(client, "login"))
    answers = {"github_login": accept(name="Ada")}

    def is_refused() -> bool:
        return ask(client, "login", {}, answers, state).outcome == (400, -32602)

    eventually(is_refused, "the state has expired")
    assert time.monotonic() - asked_at >= 0.2


def test_replicas_with_the_same_keys_share_states(server_factory: ServerFactory) -> None:
    def config(*keys: str) -> dict[str, Any]:
        return {"tools": {"reload": False}, "secrets": {"keys": list(keys)}}

    old, new = "o" * 32, "n" * 32
    one = server_factory(TOOLS, config(old)).client
    two = server_factory(TOOLS, config(new, old)).client
    three = server_factory(TOOLS, config(new)).client
    state = state_of(ask(one, "login"))
    answers = {"github_login": accept(name="Ada")}

    assert ask(two, "login", {}, answers, state).text == "Hello, Ada!"
    assert ask(three, "login", {}, answers, state).outcome == (400, -32602)
