"""A tool that asks gets its answers round by round (Multi Round-Trip Requests)."""

from typing import Any

import pytest

from tests.asking.conftest import TOOLS
from tests.asking.rounds import ALL, accept
from tests.landing.conftest import TOOLS as LANDING
from tests.support.client import meta
from tests.support.stdio import StdioFactory, StdioServer


def ask(server: StdioServer, tool: str, capabilities: Any = None, **more: Any) -> str:
    declared = meta(clientCapabilities=ALL if capabilities is None else capabilities)
    return server.ask("tools/call", {"name": tool, "arguments": {}, **more}, meta=declared)


def test_a_user_fills_in_a_form(start: StdioFactory) -> None:
    server = start(TOOLS, {"tools": {"reload": False}})
    first = server.result(ask(server, "login"))
    assert first["resultType"] == "input_required"
    assert list(first["inputRequests"]) == ["github_login"]

    answers = {"github_login": accept(name="octocat")}
    second = server.result(
        ask(server, "login", inputResponses=answers, requestState=first["requestState"])
    )
    assert second["content"][0]["text"] == "Hello, octocat!"


def test_several_calls_ask_at_once_without_confusion(start: StdioFactory) -> None:
    server = start(TOOLS, {"tools": {"reload": False}})
    ids = [ask(server, "book") for _ in range(20)]
    for number, id in enumerate(ids):
        state = server.result(id)["requestState"]
        answers = {"who": accept(name=f"guest {number}")}
        second = server.result(ask(server, "book", inputResponses=answers, requestState=state))
        assert second["inputRequests"]["trip"]["params"]["message"] == (
            f"Where does guest {number} go?"
        )


def test_a_client_that_cannot_be_asked_is_told_what_it_lacks(start: StdioFactory) -> None:
    server = start(TOOLS, {"tools": {"reload": False}})
    error = server.response(ask(server, "login", {}))["error"]

    assert error["code"] == -32021
    assert "elicitation" in error["data"]["requiredCapabilities"]


@pytest.mark.parametrize("tool", ["connect"])
def test_there_is_no_page_for_secrets(start: StdioFactory, tool: str) -> None:
    server = start(LANDING, {"tools": {"reload": False}})
    result = server.result(ask(server, tool))

    assert result["isError"] is True
    assert "over HTTP alone" in result["content"][0]["text"]
