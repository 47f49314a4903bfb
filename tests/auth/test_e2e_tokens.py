"""Tokens of a real OpenID provider: which are believed, for how long, and as whom."""

from collections.abc import Callable, Iterator

import pytest

from tests.auth import office
from tests.auth.office import RESOURCE, bearer, challenge, whoami
from tests.support.cases import rows
from tests.support.client import McpClient
from tests.support.identity import (
    APP_ES256,
    APP_OPAQUE,
    MACHINE,
    MACHINE_ES256,
    IdentityProvider,
)
from tests.support.server import ServerFactory, ServerProcess
from tests.support.waiting import eventually

COOLDOWN_S = 0.2
CACHE_S = 0.2


@pytest.fixture(scope="module")
def provider() -> Iterator[IdentityProvider]:
    with IdentityProvider() as provider:
        yield provider


@pytest.fixture(scope="module")
def server(provider: IdentityProvider, module_server_factory: ServerFactory) -> ServerProcess:
    introspection = provider.introspection_settings(cache_s=CACHE_S)
    issuer = provider.settings(
        introspection=introspection, cooldown_s=COOLDOWN_S, algorithms=["RS256", "ES256"]
    )
    return module_server_factory(office.TOOLS, office.config(issuer))


@rows(
    "token",
    ("RS256", lambda provider: provider.log_in("alice").access),
    ("ES256", lambda provider: provider.log_in("alice", client=APP_ES256).access),
    ("opaque", lambda provider: provider.log_in("alice", client=APP_OPAQUE).access),
)
def test_a_token_says_who_calls_and_what_for(
    client: McpClient, provider: IdentityProvider, token: Callable[[IdentityProvider], str]
) -> None:
    assert whoami(client, bearer(token(provider))) == {
        "issuer": provider.issuer,
        "subject": "alice",
        "tenant": "north",
        "clearance": "high",
        "scopes": ["tools:read"],
        "roles": ["accountant"],
    }


@rows("application", ("RS256", MACHINE), ("ES256", MACHINE_ES256))
def test_a_client_may_call_for_itself(
    client: McpClient, provider: IdentityProvider, application: office.Json
) -> None:
    token = provider.token("tools:read tools:write", client=application)
    seen = whoami(client, bearer(token))
    assert (seen["issuer"], seen["subject"]) == (provider.issuer, application.id)
    assert seen["scopes"] == ["tools:read", "tools:write"]
    assert seen["roles"] == list((application.claims or {}).get("roles", []))


def test_a_refreshed_token_is_the_same_principal(
    client: McpClient, provider: IdentityProvider
) -> None:
    first = provider.log_in("bob", "openid offline_access tools:read")
    second = provider.refresh(first)
    assert first.access != second.access
    assert whoami(client, bearer(first.access)) == whoami(client, bearer(second.access))


OTHER = "https://other.example.com/mcp"


@rows(
    "token",
    ("AU-06 of another resource", lambda provider: provider.token(resource=OTHER)),
    (
        "AU-06 of a resource below ours",
        lambda provider: provider.token(resource=f"{RESOURCE}/more"),
    ),
    (
        "AU-06 of the whole host",
        lambda provider: provider.token(resource="https://tools.example.com"),
    ),
    ("AU-06 an ID token", lambda provider: provider.log_in("alice", "openid tools:read").id),
    (
        "opaque, of another resource",
        lambda provider: provider.log_in("alice", resource=OTHER, client=APP_OPAQUE).access,
    ),
    (
        "a refresh token",
        lambda provider: provider.log_in("alice", "openid offline_access tools:read").refresh,
    ),
)
def test_a_token_for_something_else_is_refused(
    client: McpClient, provider: IdentityProvider, token: Callable[[IdentityProvider], str]
) -> None:
    reply = client.call("whoami", {}, bearer(token(provider)))
    assert reply.status == 401
    assert challenge(reply)["error"] == "invalid_token"


@rows(
    "resource",
    ("in capitals", "HTTPS://TOOLS.EXAMPLE.COM/mcp"),
    ("with a slash", f"{RESOURCE}/"),
    ("with its default port", "https://tools.example.com:443/mcp"),
)
def test_the_resource_may_be_spelt_in_other_ways(
    client: McpClient, provider: IdentityProvider, resource: str
) -> None:
    assert whoami(client, bearer(provider.token(resource=resource)))["subject"] == MACHINE.id


def test_keys_may_change_while_tokens_of_the_old_ones_count(
    client: McpClient, provider: IdentityProvider
) -> None:
    """AU-11: an unknown `kid` leads to one fetch per interval, which finds the new key."""
    old = provider.log_in("alice").access
    assert whoami(client, bearer(old))["subject"] == "alice"
    provider.rotate_keys()
    new = provider.log_in("bob").access
    eventually(lambda: client.call("whoami", {}, bearer(new)).status == 200, "the new key")
    assert whoami(client, bearer(provider.log_in("bob", client=APP_ES256).access))
    assert whoami(client, bearer(old))["subject"] == "alice"


def test_a_key_that_is_published_no_longer_counts_no_longer(
    client: McpClient, provider: IdentityProvider
) -> None:
    """A token of it that was never seen is refused once new keys were fetched."""
    of_old_key = provider.log_in("alice").access
    provider.rotate_keys(replace=True)
    new = provider.log_in("bob").access
    eventually(lambda: client.call("whoami", {}, bearer(new)).status == 200, "the new key")
    reply = client.call("whoami", {}, bearer(of_old_key))
    assert (reply.status, challenge(reply)["error"]) == (401, "invalid_token")


def test_an_opaque_token_that_was_revoked_is_refused_when_it_is_asked_about_again(
    client: McpClient, provider: IdentityProvider
) -> None:
    token = provider.log_in("alice", client=APP_OPAQUE).access
    assert whoami(client, bearer(token))["subject"] == "alice"
    provider.revoke(token, client=APP_OPAQUE)
    eventually(
        lambda: client.call("whoami", {}, bearer(token)).status == 401,
        "the revocation",
        CACHE_S * 10,
    )


def test_a_stream_ends_when_its_opaque_token_was_revoked(
    client: McpClient, provider: IdentityProvider
) -> None:
    """LC-11: nothing is sent to it, and the issuer alone knows."""
    token = provider.log_in("alice", client=APP_OPAQUE).access
    with client.listening(headers=bearer(token)) as stream:
        provider.revoke(token, client=APP_OPAQUE)
        (last,) = stream.rest(15)
    assert last["result"]["resultType"] == "complete"
