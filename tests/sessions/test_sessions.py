"""Sessions of older revisions over HTTP: opening, using, ending them."""

from typing import Any

import pytest

from tests.sessions.conftest import ADA, CONFIG, EVE, TOOLS, Open
from tests.sessions.conversation import BOTH, CLIENT
from tests.support.cases import rows
from tests.support.legacy_schema import VERSIONS
from tests.support.server import ServerFactory
from tests.support.waiting import eventually

LATEST = "2025-11-25"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_opens_in_the_revision_that_the_client_speaks(talk: Open, version: str) -> None:
    conversation = talk(version, opened=False)
    result = conversation.open()
    assert result["protocolVersion"] == version
    assert result["serverInfo"]["name"] == "old-friend"
    assert ("title" in result["serverInfo"]) == (version >= "2025-06-18")
    assert result["instructions"] == "Be kind."
    # Nothing is advertised that is not served: without reload nobody hears of a change.
    assert result["capabilities"] == {"logging": {}, "tools": {"listChanged": False}}
    token = conversation.token or ""
    assert 0 < len(token) <= 2048 and all("!" <= each <= "~" for each in token)


@rows(
    "version",
    ("the modern one", "2026-07-28"),
    ("the future", "2099-01-01"),
    ("the past", "1999-01-01"),
    ("nothing", ""),
)
def test_a_version_that_is_not_served_is_answered_with_the_latest(talk: Open, version: str) -> None:
    conversation = talk(opened=False)
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": CLIENT}
    assert conversation.ask("initialize", params).result["protocolVersion"] == LATEST


@rows(
    "params",
    ("none", None),
    ("no version", {"capabilities": {}, "clientInfo": CLIENT}),
    ("a number", {"protocolVersion": 1, "capabilities": {}, "clientInfo": CLIENT}),
    ("no capabilities", {"protocolVersion": LATEST, "clientInfo": CLIENT}),
    ("a list of them", {"protocolVersion": LATEST, "capabilities": [], "clientInfo": CLIENT}),
    ("no client", {"protocolVersion": LATEST, "capabilities": {}}),
)
def test_a_bad_initialize_is_told_so_and_opens_nothing(talk: Open, params: Any) -> None:
    answer = talk(opened=False).ask("initialize", params)
    assert (answer.status, answer.code) == (200, -32602)
    assert "mcp-session-id" not in answer.response.headers


@pytest.mark.parametrize("version", VERSIONS)
def test_what_clients_ask_in_a_session(talk: Open, version: str) -> None:
    conversation = talk(version)
    assert conversation.ask("ping").result == {}
    assert conversation.ask("logging/setLevel", {"level": "debug"}).result == {}
    names = [tool["name"] for tool in conversation.ask("tools/list").result["tools"]]
    assert "add" in names and names == sorted(names)
    assert "3" in conversation.call("add", {"a": 2}).text
    unknown = conversation.ask("resources/list")
    assert (unknown.status, unknown.code) == (200, -32601)


@pytest.mark.parametrize("version", [None, *VERSIONS])
def test_requests_without_a_session_are_served_too(talk: Open, version: str | None) -> None:
    conversation = talk(version or "2025-03-26", opened=False)
    header: Any = {"MCP-Protocol-Version": version}
    assert conversation.ask("ping", **header).result == {}
    assert conversation.ask("tools/list", **header).result["tools"]
    assert (
        "3" in conversation.ask("tools/call", {"name": "add", "arguments": {"a": 2}}, **header).text
    )
    assert conversation.ask("logging/setLevel", {"level": "info"}, **header).code == -32600
    asked = conversation.ask("tools/call", {"name": "book", "arguments": {"who": "a"}}, **header)
    assert asked.code == -32602 and "elicitation" in asked.last["error"]["message"]


@rows(
    "method",
    ("GET", "GET"),
    ("DELETE", "DELETE"),
)
def test_without_a_session_there_is_nothing_but_post(talk: Open, method: str) -> None:
    conversation = talk(opened=False)
    response = conversation._http.request(
        method, conversation.url, headers={"Accept": "text/event-stream"}
    )
    assert response.status_code == 405
    assert response.headers["allow"] == "GET, POST, DELETE, OPTIONS"


@rows(
    "token",
    ("made up", "00000000-dead"),
    ("empty", ""),
    ("too long", "a" * 5000),
    ("no ASCII", "\xe9\xe9"),
)
@pytest.mark.parametrize("how", ["POST", "GET", "DELETE"])
def test_a_session_that_there_is_not_is_404(talk: Open, token: str, how: str) -> None:
    conversation = talk(opened=False)
    headers = {
        b"Accept": b"application/json, text/event-stream",
        b"Content-Type": b"application/json",
        b"Mcp-Session-Id": token.encode("latin-1"),
    }
    content = b'{"jsonrpc":"2.0","id":1,"method":"ping"}' if how == "POST" else None
    response = conversation._http.request(
        how, conversation.url, content=content, headers=list(headers.items())
    )
    assert response.status_code == 404
    assert response.json()["error"]["code"] == -31404


def test_an_ended_session_is_404_and_another_one_goes_on(talk: Open) -> None:
    one, other = talk(), talk()
    assert one.end().status_code == 204
    assert one.ask("ping").status == 404
    assert one.end().status_code == 404
    with one.get() as (response, _):
        assert response.status_code == 404
    assert one.notify("notifications/initialized").status_code == 404
    assert other.ask("ping").result == {}
    assert one.open()["protocolVersion"] == LATEST  # and a new one can be opened


def test_a_session_belongs_to_who_has_opened_it(talk: Open) -> None:
    conversation = talk(who=ADA)
    assert conversation.ask("ping").result == {}
    for stranger in (EVE, {}):
        conversation.who = stranger
        assert conversation.ask("ping").status == 404
        assert conversation.end().status_code == 404
    conversation.who = {"X-API-Key": "wrong"}
    assert conversation.ask("ping").status == 401
    conversation.who = ADA
    assert conversation.ask("ping").result == {}


def test_an_altered_session_is_none(talk: Open) -> None:
    conversation = talk()
    token = conversation.token or ""
    for place in (0, len(token) // 2, len(token) - 1):
        other = "A" if token[place] != "A" else "B"
        conversation.token = token[:place] + other + token[place + 1 :]
        assert conversation.ask("ping").status == 404


def test_a_session_ends_with_its_time(server_factory: ServerFactory, talk: Open) -> None:
    config = {**CONFIG, "legacy": {"session_ttl_s": 0.3}}
    conversation = talk(server=server_factory(TOOLS, config))
    eventually(lambda: conversation.ask("ping").status == 404, "the end of the session")


@rows(
    "version, status",
    ("garbage", "garbage", 400),
    ("a date that is none", "1999-01-01", 400),
    ("the modern one", "2026-07-28", 400),
    ("of another revision that is served", "2025-06-18", 200),
    ("none", None, 200),
)
def test_the_version_header_is_looked_at(talk: Open, version: str | None, status: int) -> None:
    header: Any = {"MCP-Protocol-Version": version}
    answer = talk().ask("tools/list", **header)
    assert answer.status == status
    if status == 400 and version != "2026-07-28":
        assert "Unsupported protocol version" in answer.last["error"]["message"]


@pytest.mark.parametrize("in_session", [True, False])
@rows(
    "body",
    ("a request", {"jsonrpc": "2.0", "id": 1, "method": "ping"}),
    ("a notification", {"jsonrpc": "2.0", "method": "notifications/x"}),
    ("a batch", [{"jsonrpc": "2.0", "id": 1, "method": "ping"}]),
    ("GET", "GET"),
    ("DELETE", "DELETE"),
    ("a response", {"jsonrpc": "2.0", "id": "x", "result": {}}),
)
def test_the_version_header_is_looked_at_on_whatever_comes(
    talk: Open, body: Any, in_session: bool
) -> None:
    conversation = talk("2025-03-26", opened=in_session)
    if not in_session and (isinstance(body, str) or "result" in body):
        return  # without a session there is none of these
    for version in ("1999-01-01", "2025-03-26, 2025-03-26"):
        header = {"MCP-Protocol-Version": version, "Accept": BOTH}
        response = (
            conversation._http.request(body, conversation.url, headers=conversation.headers(header))
            if isinstance(body, str)
            else conversation.post(body, **header)
        )
        assert response.status_code == 400
        assert "Unsupported protocol version" in response.json()["error"]["message"]
        assert response.json()["error"]["code"] == -32602 or not in_session
    if in_session:
        assert conversation.ask("ping").result == {}  # DELETE had no effect


@rows(
    "name, value",
    ("the session", "Mcp-Session-Id", None),
    ("the version", "MCP-Protocol-Version", "2025-11-25"),
    ("the place in a stream", "Last-Event-ID", "1"),
)
@pytest.mark.parametrize("how", ["POST", "GET", "DELETE"])
def test_two_copies_of_a_header_are_refused(
    talk: Open, name: str, value: str | None, how: str
) -> None:
    conversation = talk()
    twice = [(name, value or conversation.token or "")] * 2
    lines = [each for each in conversation.headers().items() if each[0] != name]
    content = b'{"jsonrpc":"2.0","method":"notifications/x"}' if how == "POST" else None
    response = conversation._http.request(
        how, conversation.url, content=content, headers=[*lines, *twice]
    )
    assert response.status_code == 400 and "more than once" in response.text
    assert conversation.ask("ping").result == {}


@pytest.mark.parametrize("enabled", [True, False])
def test_the_methods_that_are_offered_are_those_that_are_served(
    server_factory: ServerFactory, talk: Open, enabled: bool
) -> None:
    config = {**CONFIG, "legacy": {"enabled": enabled}}
    config["server"] = {**CONFIG["server"], "allowed_origins": ["https://app.example"]}
    conversation = talk(server=server_factory(TOOLS, config), opened=False)
    methods = "GET, POST, DELETE" if enabled else "POST"
    refused = conversation._http.put(conversation.url)
    assert (refused.status_code, refused.headers["allow"]) == (405, f"{methods}, OPTIONS")
    asks = {"Origin": "https://app.example", "Access-Control-Request-Method": "POST"}
    preflight = conversation._http.options(conversation.url, headers=asks)
    assert preflight.headers["access-control-allow-methods"] == methods


def test_old_and_new_clients_do_not_rub_off_on_each_other(talk: Open) -> None:
    conversation = talk()
    client = conversation.servers[0].client
    for _ in range(3):
        assert "resultType" not in conversation.ask("tools/list").result
        assert client.ask("tools/list").result["resultType"] == "complete"


def test_where_they_are_switched_off_nothing_of_them_is_served(
    server_factory: ServerFactory, talk: Open
) -> None:
    server = server_factory(TOOLS, {**CONFIG, "legacy": {"enabled": False}})
    conversation = talk(server=server, opened=False)
    params = {"protocolVersion": LATEST, "capabilities": {}, "clientInfo": CLIENT}
    response = conversation.post(conversation.message("initialize", params))
    assert response.status_code == 400 and "2026-07-28" in response.text
    assert server.client.ask("server/discover").result["supportedVersions"] == ["2026-07-28"]
    conversation.token = "x"
    with conversation.get() as (refused, _):
        assert refused.status_code == 405
