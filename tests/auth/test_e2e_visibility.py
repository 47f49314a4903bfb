"""Two callers with different claims see and call different tools; what is hidden does not exist."""

import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.auth import office
from tests.auth.office import METADATA_URL, Headers, api_key, bearer, challenge, raw
from tests.support.cases import rows
from tests.support.client import McpClient, Reply, body_of, meta
from tests.support.http1 import Connection, Request
from tests.support.issuer import Issuer
from tests.support.server import ServerFactory, ServerProcess

HIDDEN, UNKNOWN = "finance.pay", "finance.pal"
ROUNDS = 1500
ANY_KEY, ANY_TABLE = api_key("visitor")


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with Issuer(audience=office.RESOURCE, algorithm="ES256") as issuer:
        yield issuer


@pytest.fixture(scope="module")
def server(issuer: Issuer, module_server_factory: ServerFactory) -> ServerProcess:
    trusting = {"trusted_proxies": ["127.0.0.1"], "max_body_bytes": 65_536}
    settings = office.config(
        issuer.settings(),
        server=trusting,
        auth={
            "api_keys": [ANY_TABLE],
            "scope_hierarchy": {"tools:all": ["tools:read", "tools:write"]},
        },
        overrides={"give_up": {"enabled": False}},
    )
    return module_server_factory(office.TOOLS, settings)


@pytest.fixture
def alice(issuer: Issuer) -> Headers:
    return bearer(issuer.token(sub="alice", roles=["accountant"], scope="tools:read"))


@pytest.fixture
def bob(issuer: Issuer) -> Headers:
    return bearer(issuer.token(sub="bob", roles=["clerk"], scope="tools:read tools:write"))


# -- what is seen ----------------------------------------------------------------


def test_each_caller_is_listed_what_it_may_know(
    client: McpClient, alice: Headers, bob: Headers
) -> None:
    common = (office.COMMON | office.SCOPED) - {"give_up"}
    assert set(client.tools(headers=alice)) == common | office.FINANCE
    assert set(client.tools(headers=bob)) == common
    assert set(client.tools(headers={"X-API-Key": ANY_KEY})) == common


def test_lists_of_different_callers_are_not_for_shared_caches(
    client: McpClient, alice: Headers
) -> None:
    assert client.ask("tools/list", {}, alice).result["cacheScope"] == "private"


def test_a_cursor_of_one_caller_shows_another_nothing_more(
    issuer: Issuer, module_server_factory: ServerFactory, alice: Headers, bob: Headers
) -> None:
    settings = office.config(issuer.settings(), tools={"page_size": 1})
    client = module_server_factory(office.TOOLS, settings).client
    cursors: list[str] = []
    result: dict[str, Any] = {"nextCursor": None}
    while "nextCursor" in result:
        cursor = result["nextCursor"]
        cursors += [cursor] if cursor else []
        result = client.ask("tools/list", {"cursor": cursor} if cursor else {}, alice).result
    for cursor in cursors:
        page = client.ask("tools/list", {"cursor": cursor}, bob).result["tools"]
        assert not office.FINANCE & {tool["name"] for tool in page}


def test_each_caller_may_call_what_it_sees(client: McpClient, alice: Headers, bob: Headers) -> None:
    assert client.call(HIDDEN, {"amount": 5}, alice).text == "paid 5"
    assert client.call("read_notes", {}, bob).text == "notes"
    assert client.call(HIDDEN, {"amount": 5}, bob).outcome == (400, -32602)


# -- what is hidden ----------------------------------------------------------------


def same_request(name: str, case: dict[str, Any], headers: Headers, client: McpClient) -> Request:
    arguments = case.get("arguments", {"amount": 1})
    params = {"name": name, "arguments": arguments, **case.get("params", {})}
    return client.request(
        "tools/call",
        params,
        {**headers, **case.get("headers", {})},
        meta_=meta(**case.get("meta", {})),
        **case.get("how", {}),
    )


@rows(
    "case",
    ("as it should be called", {}),
    ("without arguments", {"arguments": {}}),
    ("with arguments of another type", {"arguments": {"amount": "much"}}),
    ("with an unknown argument", {"arguments": {"amount": 1, "x": 2}}),
    ("with arguments that are no object", {"arguments": [1]}),
    ("with arguments of null", {"arguments": None}),
    ("with another name in the header", {"headers": {"Mcp-Name": "whoami"}}),
    ("without a name in the header", {"headers": {"Mcp-Name": None}}),
    ("with another method in the header", {"headers": {"Mcp-Method": "tools/list"}}),
    ("with a header that no tool declares", {"headers": {"Mcp-Param-Colour": "red"}}),
    ("with a header that a hidden tool declares", {"headers": {"Mcp-Param-Region": "north"}}),
    ("with a name in Base64 in the header", {"headers": {"Mcp-Name": "=?base64?Zg==?="}}),
    ("with a version that is not served", {"meta": {"protocolVersion": "2024-01-01"}}),
    ("with a progress token", {"meta": {"progressToken": "p"}}),
    ("with a log level", {"meta": {"logLevel": "debug"}}),
    ("for a client that takes no JSON", {"headers": {"Accept": "text/html"}}),
    ("for a client that takes no stream", {"headers": {"Accept": "application/json"}}),
    ("from another media type", {"headers": {"Content-Type": "text/plain"}}),
    ("in a body that is too large", {"arguments": {"amount": "x" * 70_000}}),
    ("in a large body", {"arguments": {"amount": "x" * 60_000}}),
    ("from an origin", {"headers": {"Origin": office.APP_ORIGIN}}),
    ("from a strange origin", {"headers": {"Origin": "https://evil.test"}}),
    ("with an id of text", {"how": {"id": "a-1"}}),
)
@pytest.mark.parametrize("tool", [HIDDEN, "unruled", "finance.send", "give_up"])
def test_a_hidden_tool_is_answered_as_an_unknown_one_byte_for_byte(
    client: McpClient, bob: Headers, tool: str, case: dict[str, Any]
) -> None:
    """Not ours to see, without a rule, with headers of its own, switched off."""
    unknown = tool[:-1] + "~"
    answers = []
    for name in (tool, unknown):
        request = same_request(name, case, bob, client)
        with client.connect() as connection:
            status, reason, headers, body = raw(connection.exchange(request))
        answers.append((status, reason, headers, body.replace(name.encode(), b"?")))
    assert answers[0] == answers[1]
    assert answers[0][0] >= 400


@rows("case", ("with its header missing", {}), ("with its header", {"Mcp-Param-Region": "north"}))
def test_a_caller_who_sees_a_tool_is_held_to_its_headers(
    client: McpClient, alice: Headers, case: Headers
) -> None:
    """The counterpart: the same requests are told apart for somebody who may call."""
    reply = client.call("finance.send", {"region": "north", "amount": 1}, {**alice, **case})
    assert (reply.status == 200) == bool(case)


def exchange_s(connection: Connection, data: bytes) -> float:
    begin = time.perf_counter()
    connection.send(data)
    connection.read_response()
    return time.perf_counter() - begin


def test_hidden_and_unknown_take_the_same_time(client: McpClient, bob: Headers) -> None:
    """Measured in turn on one connection, so that whatever disturbs disturbs both."""
    requests = {
        name: client.request("tools/call", {"name": name, "arguments": {"amount": 1}}, bob).encode()
        for name in (HIDDEN, UNKNOWN)
    }
    times: dict[str, list[float]] = {name: [] for name in requests}
    with client.connect() as connection:
        for round_ in range(ROUNDS):
            # Each of them is first as often as second.
            for name in sorted(requests, reverse=round_ % 2 == 0):
                times[name].append(exchange_s(connection, requests[name]))
    hidden, unknown = (statistics.median(times[name]) for name in (HIDDEN, UNKNOWN))
    assert hidden == pytest.approx(unknown, rel=0.1)


# -- what is challenged ------------------------------------------------------------


@rows(
    "tool, arguments, scopes",
    ("AU-09 by a rule", "write_notes", {"path": "x", "text": "y"}, "tools:admin tools:write"),
    ("AU-09 with bad arguments", "write_notes", {"colour": 7}, "tools:admin tools:write"),
    ("AU-09 by the tool itself", "erase_notes", {}, "tools:admin"),
)
def test_missing_scopes_are_named_all_at_once(
    client: McpClient, bob: Headers, tool: str, arguments: dict[str, Any], scopes: str
) -> None:
    """Those the caller has are named too: a new token is to have them all."""
    own = meta(logLevel="debug") | {"progressToken": "p"}
    reply = client.call(tool, arguments, bob, meta_=own)
    assert reply.outcome == (403, -31403)
    assert reply.response.media_type == "application/json"
    said = challenge(reply)
    assert said["error"] == "insufficient_scope"
    assert said["scope"] == scopes
    assert said["resource_metadata"] == METADATA_URL


def test_a_challenged_tool_is_not_run(client: McpClient, bob: Headers, tmp_path: Path) -> None:
    path = tmp_path / "notes"
    client.call("write_notes", {"path": str(path), "text": "x"}, bob)
    assert not path.exists()


def test_headers_are_checked_before_scopes(client: McpClient, bob: Headers) -> None:
    reply = client.call("write_notes", {}, {**bob, "Mcp-Name": "read_notes"})
    assert reply.outcome == (400, -32020)


def test_a_broader_scope_implies_narrower_ones(client: McpClient, issuer: Issuer) -> None:
    token = issuer.token(scope="tools:all")
    assert client.call("read_notes", {}, bearer(token)).status == 200


# -- what gates the call alone -------------------------------------------------------


def call_from(client: McpClient, who: Headers, address: str | None) -> Reply:
    return client.call("ring_bell", {}, {**who, "X-Forwarded-For": address})


def test_the_network_decides_about_the_call_and_not_about_the_list(
    client: McpClient, bob: Headers
) -> None:
    lists = [
        raw(client.ask("tools/list", {}, {**bob, "X-Forwarded-For": address}).response)
        for address in ("10.1.2.3", "192.0.2.1")
    ]
    assert lists[0] == lists[1]
    assert call_from(client, bob, "10.1.2.3").text == "ding"
    for address in ("192.0.2.1", None, "10.1.2.3, 192.0.2.1"):
        assert call_from(client, bob, address).outcome == (403, -31403)


def test_a_rule_about_arguments_tells_the_model_what_to_do(client: McpClient, bob: Headers) -> None:
    assert client.call("stamp", {"copies": 3}, bob).text == "3 stamped"
    reply = client.call("stamp", {"copies": 4}, bob)
    assert reply.status == 200 and reply.is_error
    assert "copies" in reply.text and "3" in reply.text


def test_a_body_that_names_a_hidden_tool_twice_is_no_way_in(
    client: McpClient, bob: Headers
) -> None:
    body = body_of("tools/call", {"name": "whoami", "arguments": {}})
    reply = client.ask("tools/call", {"name": "whoami"}, {**bob, "Mcp-Name": HIDDEN}, body=body)
    assert reply.outcome == (400, -32020)
