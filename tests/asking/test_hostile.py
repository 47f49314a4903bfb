"""Answers and states that somebody made up."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.asking.rounds import ALL, accept, ask, questions, state_of
from tests.auth.office import api_key, bearer
from tests.support.cases import rows
from tests.support.client import McpClient, meta
from tests.support.server import ServerFactory, ServerProcess

TOOLS = Path(__file__).with_name("tools")
REFUSED = (400, -32602)


@rows(
    "answers, state",
    ("answers a list", [], None),
    ("answers a text", "octocat", None),
    ("answers a number", 1, None),
    ("an answer a number", {"github_login": 12345}, None),
    ("an answer null", {"github_login": None}, None),
    ("an answer a text", {"github_login": "octocat"}, None),
    ("an answer a list", {"github_login": []}, None),
    ("an answer to nothing, of no form", {"other": 1}, None),
    ("state a number", None, 1),
    ("state a list", None, []),
    ("state an object", {}, {"who": "octocat"}),
    ("state empty", None, ""),
    ("state made up", {}, "QUJD"),
    ("state not ASCII", {}, "ä" * 60),
    ("state long", {}, "A" * 200_000),
)
def test_what_has_the_wrong_shape_is_refused(client: McpClient, answers: Any, state: Any) -> None:
    assert ask(client, "login", {}, answers, state).outcome == REFUSED


@pytest.mark.parametrize("member", ["inputResponses", "requestState"])
def test_null_is_refused(client: McpClient, member: str) -> None:
    params: dict[str, Any] = {"name": "login", "arguments": {}, member: None}
    assert client.ask("tools/call", params).outcome == REFUSED


@rows(
    "tool, arguments",
    ("of other arguments", "login", {"greeting": "Hi"}),
    ("of another tool", "redeem", {}),
    ("of another tool with the same key", "undeclared", {}),
    ("of a tool that never asks", "effects", {}),
)
def test_a_state_of_another_call_is_refused(
    client: McpClient, tool: str, arguments: dict[str, Any]
) -> None:
    state = state_of(ask(client, "login"))
    assert ask(client, tool, arguments, {}, state).outcome == REFUSED


def test_arguments_that_mean_the_same_make_the_same_call(client: McpClient) -> None:
    state = state_of(ask(client, "login"))
    declared = meta(clientCapabilities=ALL)
    for arguments in ({"arguments": None}, {}):
        params = {"name": "login", **arguments, "requestState": state}
        assert questions(client.ask("tools/call", params, meta_=declared))


def test_answers_for_another_call_are_not_looked_at(client: McpClient) -> None:
    # The key is the same, the question is not: a state of this call says what was asked.
    first = ask(client, "book")
    answers = {"trip": accept(to="Rome"), "github_login": accept(name="Ada")}
    second = ask(client, "book", {}, answers, state_of(first))
    assert list(questions(second)) == ["who"]


def test_a_huge_answer_is_refused_or_asked_again(client: McpClient) -> None:
    first = ask(client, "book")
    huge = ask(client, "book", {}, {"who": accept(name="x" * 500_000)}, state_of(first))
    assert huge.is_error
    assert "too long to be carried" in huge.text
    too_large = ask(client, "book", {}, {"who": accept(name="x" * 5_000_000)}, state_of(first))
    assert too_large.status == 413


def test_extra_keys_are_ignored(client: McpClient) -> None:
    answer = {**accept(name="Ada", admin=True, __class__="x"), "more": [1], "_meta": {}}
    first = ask(client, "login")
    answers = {"github_login": answer, "unknown": {"x": 1}}
    assert ask(client, "login", {}, answers, state_of(first)).text == "Hello, Ada!"


@pytest.fixture(scope="module")
def one_state(server: ServerProcess) -> str:
    return state_of(ask(server.client, "login"))


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_state_that_was_touched_is_refused(
    client: McpClient, one_state: str, data: st.DataObject
) -> None:
    index = data.draw(st.integers(0, len(one_state) - 1))
    other = data.draw(st.sampled_from("ABab01-_=").filter(lambda each: each != one_state[index]))
    touched = data.draw(
        st.sampled_from(
            [
                one_state[:index] + other + one_state[index + 1 :],
                one_state[:index],
                one_state + other,
                one_state + "-TAMPERED",
            ]
        )
    )
    reply = ask(client, "login", {}, {"github_login": accept(name="Ada")}, touched)
    assert reply.outcome == REFUSED


ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["action", "content", "name", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(answer=ANY, content=ANY)
def test_no_answer_makes_the_server_fail(client: McpClient, answer: Any, content: Any) -> None:
    for each in (answer, {"action": "accept", "content": content}):
        reply = ask(client, "login", {}, {"github_login": each})
        if reply.code is not None:
            assert reply.outcome == REFUSED
        elif reply.result["resultType"] == "complete":
            assert isinstance(each, dict)
            assert not reply.is_error
        else:
            assert questions(reply)


def test_a_state_belongs_to_who_was_asked(server_factory: ServerFactory) -> None:
    (ada, of_ada), (eve, of_eve) = api_key("ada"), api_key("eve")
    config = {
        "tools": {"reload": False},
        "auth": {"api_keys": [of_ada, of_eve], "default": "allow"},
    }
    client = server_factory(TOOLS, config).client
    state = state_of(ask(client, "login", headers=bearer(ada)))
    answers = {"github_login": accept(name="Ada")}

    def outcome(key: str) -> tuple[int, int | None]:
        return ask(client, "login", {}, answers, state, headers=bearer(key)).outcome

    assert outcome(ada) == (200, None)
    assert outcome(eve) == REFUSED
