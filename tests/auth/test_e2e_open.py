"""A server that also serves strangers: they get what no rule keeps from them, and no more."""

from collections.abc import Iterator

import pytest

from tests.auth import office
from tests.auth.office import METADATA_URL, api_key, bearer, challenge
from tests.support.client import McpClient
from tests.support.issuer import Issuer
from tests.support.server import ServerFactory, ServerProcess

RULES = (
    {"tools": ["read_notes"], "requires": {"scopes": ["tools:read"]}},
    {"tools": ["finance.*"], "requires": {"roles": ["accountant"]}},
)
OPEN = {"allow_unauthenticated": True, "default": "allow"}


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with Issuer(audience=office.RESOURCE, algorithm="ES256") as issuer:
        yield issuer


@pytest.fixture(scope="module")
def server(issuer: Issuer, module_server_factory: ServerFactory) -> ServerProcess:
    settings = office.config(issuer.settings(), policies=RULES, auth=OPEN)
    return module_server_factory(office.TOOLS, settings)


def test_a_stranger_sees_what_asks_for_nothing_or_for_scopes_alone(client: McpClient) -> None:
    assert set(client.tools()) == office.COMMON | office.SCOPED | {"unruled"}
    assert client.call("whoami", {}).value["subject"] is None
    assert client.call("finance.pay", {"amount": 1}).outcome == (400, -32602)


def test_a_stranger_who_needs_scopes_is_asked_for_a_credential(client: McpClient) -> None:
    """401 and not 403: there is no token yet that could be given more."""
    reply = client.call("read_notes", {})
    assert reply.outcome == (401, -31401)
    assert challenge(reply) == {"resource_metadata": METADATA_URL, "scope": "tools:read"}


def test_who_shows_a_credential_is_served_as_its_holder(client: McpClient, issuer: Issuer) -> None:
    alice = bearer(issuer.token(roles=["accountant"]))
    assert client.call("whoami", {}, alice).value["subject"] == "alice"
    assert set(client.tools(headers=alice)) == set(client.tools()) | office.FINANCE


def test_a_bad_credential_does_not_make_a_stranger(client: McpClient, issuer: Issuer) -> None:
    for headers in (
        bearer("bad"),
        bearer(issuer.token(aud="https://other.example.com")),
        {"X-API-Key": api_key("nobody")[0]},
    ):
        reply = client.call("whoami", {}, headers)
        assert (reply.status, challenge(reply)["error"]) == (401, "invalid_token")


def test_a_list_that_differs_between_callers_is_private(client: McpClient) -> None:
    assert client.ask("tools/list", {}).result["cacheScope"] == "private"


def test_a_list_that_is_the_same_for_everybody_is_public(
    issuer: Issuer, server_factory: ServerFactory
) -> None:
    """Scopes alone gate the call and not the list."""
    settings = office.config(issuer.settings(), policies=RULES[:1], auth=OPEN)
    client = server_factory(office.TOOLS, settings).client
    lists = [
        office.raw(client.ask("tools/list", {}, headers).response)
        for headers in ({}, bearer(issuer.token()), bearer(issuer.token(scope="tools:read")))
    ]
    assert lists[0] == lists[1] == lists[2]
    assert client.ask("tools/list", {}).result["cacheScope"] == "public"
