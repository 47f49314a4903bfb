"""The official client finds its way from a 401 to a call, all by what the server tells it."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import httpx2
import pytest
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthToken,
)
from pydantic import AnyUrl

from tests.auth import office
from tests.support.identity import APP, CALLBACK, IdentityProvider, visit
from tests.support.server import ServerFactory, ServerProcess

WAIT_S: Final = 10.0


@pytest.fixture(scope="module")
def provider() -> Iterator[IdentityProvider]:
    with IdentityProvider() as provider:
        yield provider


@pytest.fixture(scope="module")
def server(provider: IdentityProvider, module_server_factory: ServerFactory) -> ServerProcess:
    # The client holds the resource's identifier against the address it talks to.
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    where = {"public_url": f"http://127.0.0.1:{port}"}
    settings = office.config(provider.settings(), server=where)
    server = module_server_factory(office.TOOLS, settings, port=port)
    server.wait_for_log(lambda log: log["event"] == "issuer_keys_refreshed", timeout=30)
    return server


@dataclass
class Person:
    """Somebody with a client: their browser, and what the client keeps and sends.

    Attributes:
        asked: The scopes of each visit to the authorization endpoint.
        seen: Method, path and status of each exchange.
        leaks: Requests that carried a token to somebody other than the server.
    """

    account: str
    server: str
    tokens: OAuthToken | None = None
    registration: OAuthClientInformationFull | None = None
    asked: list[set[str]] = field(default_factory=list)
    seen: list[tuple[str, str, int]] = field(default_factory=list)
    leaks: list[str] = field(default_factory=list)
    _answer: dict[str, str] = field(default_factory=dict)

    # What the client stores

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.registration

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.registration = client_info

    # The browser

    async def open_browser(self, url: str) -> None:
        self.asked.append(set(httpx2.URL(url).params.get("scope", "").split()))
        self._answer = await asyncio.to_thread(visit, url, self.account)

    async def come_back(self) -> AuthorizationCodeResult:
        answer = self._answer
        return AuthorizationCodeResult(
            code=answer["code"], state=answer["state"], iss=answer["iss"]
        )

    # The wire

    async def on_response(self, response: httpx2.Response) -> None:
        request = response.request
        self.seen.append((request.method, request.url.path, response.status_code))
        if "authorization" in request.headers and str(request.url) != self.server:
            self.leaks.append(str(request.url))

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        """The official client, with its own OAuth."""
        redirects = [AnyUrl(CALLBACK)]
        auth = OAuthClientProvider(
            self.server,
            OAuthClientMetadata(redirect_uris=redirects, token_endpoint_auth_method="none"),
            self,
            redirect_handler=self.open_browser,
            callback_handler=self.come_back,
        )
        hooks: Any = {"response": [self.on_response]}
        async with (
            httpx2.AsyncClient(auth=auth, timeout=WAIT_S, event_hooks=hooks) as http,
            Client(streamable_http_client(self.server, http_client=http)) as client,
        ):
            yield client


async def test_the_client_comes_from_a_401_to_a_call(
    server: ServerProcess, provider: IdentityProvider
) -> None:
    """AU-01, AU-04: metadata, discovery, registration, PKCE, token, call."""
    alice = Person("alice", server.url)
    async with alice.client() as client:
        result = await client.call_tool("whoami", {})
    assert result.structured_content is not None
    assert result.structured_content["issuer"] == provider.issuer
    assert result.structured_content["subject"] == "alice"
    assert result.structured_content["scopes"] == ["tools:read"]
    assert alice.asked[0] - {"offline_access"} == {"tools:read"}
    paths = [(method, path, status) for method, path, status in alice.seen if status != 404]
    assert paths[:6] == [
        ("POST", "/mcp", 401),
        ("GET", "/.well-known/oauth-protected-resource/mcp", 200),
        ("GET", "/.well-known/oauth-authorization-server", 200),
        ("POST", "/reg", 201),
        ("POST", "/token", 200),
        ("POST", "/mcp", 200),
    ]
    assert {status for _, _, status in paths[5:]} == {200}
    assert not alice.leaks


async def test_a_client_that_is_known_to_the_provider_needs_no_registration(
    server: ServerProcess, provider: IdentityProvider
) -> None:
    registration = OAuthClientInformationFull(
        client_id=APP.id,
        redirect_uris=[AnyUrl(CALLBACK)],
        token_endpoint_auth_method="none",
        issuer=provider.issuer,
    )
    bob = Person("bob", server.url, registration=registration)
    async with bob.client() as client:
        result = await client.call_tool("read_notes", {})
    assert not result.is_error
    assert ("POST", "/reg", 201) not in bob.seen


async def test_a_challenge_for_scopes_leads_to_one_more_authorization(
    server: ServerProcess,
) -> None:
    """AU-09: the 403 names every scope at once, so the second token suffices."""
    alice = Person("alice", server.url)
    async with alice.client() as client:
        assert not (await client.call_tool("read_notes", {})).is_error
        result = await client.call_tool("write_notes", {"path": "/dev/null", "text": "x"})
        assert not result.is_error
        assert not (await client.call_tool("read_notes", {})).is_error
    first, second = (scopes - {"offline_access"} for scopes in alice.asked)
    assert first == {"tools:read"}
    assert second == {"tools:read", "tools:write", "tools:admin"}
    assert [status for _, path, status in alice.seen if path == "/mcp"].count(403) == 1


async def test_two_people_see_different_tools(server: ServerProcess) -> None:
    seen = {}
    for account in ("alice", "bob"):
        async with Person(account, server.url).client() as client:
            seen[account] = {tool.name for tool in (await client.list_tools()).tools}
    assert seen["bob"] == office.COMMON | office.SCOPED
    assert seen["alice"] == seen["bob"] | office.FINANCE
