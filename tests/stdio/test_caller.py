"""Rules hold for the caller whose credential is in the environment."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.auth.office import COMMON, FINANCE, RESOURCE, SCOPED, TOOLS, api_key, config
from tests.stdio.conftest import TOOLS as PRINTING
from tests.support.issuer import Issuer
from tests.support.stdio import StdioFactory, StdioServer

CLERK, CLERK_TABLE = api_key("clerk", scopes=["tools:read"])
PAYER, PAYER_TABLE = api_key("payer", roles=["accountant"])
STRANGER, _ = api_key("stranger")
OLD, OLD_TABLE = api_key("old")
AUTH = {
    "api_keys": [
        CLERK_TABLE,
        PAYER_TABLE,
        {**OLD_TABLE, "expires_at": datetime(2020, 1, 1, tzinfo=UTC).isoformat()},
    ]
}


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with Issuer(audience=RESOURCE) as running:
        yield running


def office(factory: StdioFactory, *issuers: Any, **how: Any) -> StdioServer:
    auth = {**AUTH, **how.pop("auth", {})}
    return factory(TOOLS, config(*issuers, auth=auth, tools={"reload": False}), **how)


def listed(server: StdioServer) -> set[str]:
    return {tool["name"] for tool in server.result(server.ask("tools/list"))["tools"]}


def test_a_key_in_the_environment_says_who_calls(start: StdioFactory) -> None:
    clerk = office(start, env={"MCP_API_KEY": CLERK})
    assert listed(clerk) == COMMON | SCOPED
    assert clerk.call("whoami")["structuredContent"]["subject"] == "clerk"

    payer = office(start, env={"MCP_ACCESS_TOKEN": PAYER})
    assert listed(payer) == COMMON | SCOPED | FINANCE
    assert payer.response(payer.begin("read_notes"))["error"]["code"] == -31403
    assert clerk.response(clerk.begin("finance.pay"))["error"]["code"] == -32602
    assert clerk.call("read_notes")["isError"] is False


def test_a_key_may_stand_in_a_file(start: StdioFactory, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(f"{CLERK}\n", "utf-8")
    server = office(start, args=("--api-key-file", str(file)))

    line = server.call("whoami")["structuredContent"]
    assert (line["issuer"], line["subject"]) == ("api-key", "clerk")


def test_a_token_of_an_issuer_says_who_calls(start: StdioFactory, issuer: Issuer) -> None:
    token = issuer.token(sub="anna", scope="tools:read")
    server = office(start, {"issuer": issuer.url}, env={"MCP_ACCESS_TOKEN": token})

    assert listed(server) == COMMON | SCOPED
    line = server.wait_for_log(lambda log: log.get("method") == "tools/list")
    assert (line["issuer"], line["subject"]) == (issuer.url, "anna")
    assert token not in server.log_text()


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({}, "MCP_API_KEY"),
        ({"MCP_API_KEY": ""}, "empty"),
        ({"MCP_API_KEY": STRANGER}, "not known"),
        ({"MCP_API_KEY": OLD}, "expired"),
        ({"MCP_API_KEY": "mts_clerk_short"}, "refused"),
        ({"MCP_API_KEY": CLERK, "MCP_ACCESS_TOKEN": CLERK}, "two credentials"),
        ({"MCP_ACCESS_TOKEN": "not a token"}, "malformed"),
        ({"MCP_ACCESS_TOKEN": "eyJhbGciOiJub25lIn0.e30."}, "refused"),
    ],
)
def test_a_credential_that_does_not_count_ends_the_process(
    start: StdioFactory, env: dict[str, str], words: str
) -> None:
    server = office(start, env=env, start=False, expected=7)
    server.spawn()

    assert server.wait() == 7
    server.wait_for_silence()
    assert words in server.log_text()
    assert not [value for value in env.values() if value and value in server.log_text()]
    assert server.messages == []


def test_where_nobody_needs_a_credential_anonymous_callers_are_served(start: StdioFactory) -> None:
    server = office(start, auth={"allow_unauthenticated": True})

    assert listed(server) == COMMON | SCOPED
    assert server.call("whoami")["structuredContent"]["subject"] is None


def test_a_credential_that_ends_later_is_refused_from_then_on(
    start: StdioFactory, issuer: Issuer
) -> None:
    server = start(TOOLS, config({"issuer": issuer.url}, auth=AUTH), env={"MCP_API_KEY": CLERK})
    listening = server.ask("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    assert "read_notes" in listed(server)

    server.write_config(config({"issuer": issuer.url}, auth={**AUTH, "revoked": ["clerk"]}))
    server.wait_for_log(lambda log: log.get("event") == "configuration_applied")

    error = server.response(server.ask("tools/list"))["error"]
    assert error["code"] == -31401
    assert error["message"] == "The API key is not known."
    server.result(listening)
    server.wait_for(lambda message: message.get("method") == "notifications/cancelled")


def test_an_issuer_that_cannot_be_reached_refuses_nobody_for_good(
    start: StdioFactory, issuer: Issuer
) -> None:
    token = issuer.token(sub="anna")
    issuer.stop()
    server = office(start, {"issuer": issuer.url}, env={"MCP_ACCESS_TOKEN": token})

    server.wait_for_log(lambda log: log.get("event") == "credential_unchecked")
    error = server.response(server.ask("tools/list"))["error"]
    assert error["code"] == -31503
    assert error["data"]["retryAfterMs"] > 0


def test_a_rule_about_networks_lets_nobody_in(start: StdioFactory) -> None:
    server = office(start, env={"MCP_API_KEY": CLERK})

    assert server.response(server.begin("ring_bell"))["error"]["code"] == -31403


def test_tools_do_not_find_the_credential(start: StdioFactory) -> None:
    auth = {"api_keys": [CLERK_TABLE], "default": "allow"}
    settings = {"auth": auth, "tools": {"reload": False}}
    server = start(PRINTING, settings, env={"MCP_API_KEY": CLERK}, is_noisy=True)

    for tool in ("environment", "environment_apart"):
        assert server.call(tool)["structuredContent"] == {}
