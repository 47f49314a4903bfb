"""Origin and Host: what keeps other web sites from using a visitor's server. And CORS."""

import pytest

from tests.support.cases import rows
from tests.support.client import McpClient
from tests.support.http1 import Request, Response
from tests.support.server import ServerFactory, ServerProcess

APP = "https://app.example.com"
ASKED = (
    "authorization,content-type,mcp-protocol-version,mcp-method,mcp-name,mcp-session-id,"
    "last-event-id,accept,mcp-param-region"
)


@pytest.fixture(scope="module")
def deployed(module_server_factory: ServerFactory) -> ServerProcess:
    """A server as configured behind a public name."""
    return module_server_factory(
        config={
            "server": {
                "public_url": "https://mcp.example.com",
                "allowed_hosts": ["app", "*.internal.example"],
                "allowed_origins": [APP, "http://plain.example.com:3000"],
            },
            "tools": {"reload": False},
        }
    )


@rows(
    "origin",
    ("wire §2 origin absent", None),
    ("wire §2 origin localhost", "http://localhost:6274"),
    ("wire §2 origin https localhost", "https://localhost:3000"),
    ("wire §2 origin loopback address", "http://127.0.0.1"),
    ("wire §2 origin IPv6 loopback", "http://[::1]:8080"),
)
def test_a_loopback_server_serves_loopback_origins(client: McpClient, origin: str | None) -> None:
    assert client.ask("tools/list", headers={"Origin": origin}).status == 200


@rows(
    "origin",
    ("wire §2 origin disallowed", "http://evil.test"),
    ("wire §2 origin null", "null"),
    ("wire §2 origin empty", ""),
    ("wire §2 origin garbage", "not an origin"),
    ("wire §2 origin localhost.evil.com", "http://localhost.evil.com"),
    ("CO-07 evil after loopback", "http://127.0.0.1.evil.test"),
    ("CO-07 loopback as user", "http://localhost@evil.test"),
    ("CO-07 loopback with path", "http://evil.test/localhost"),
    ("CO-07 two in one", "http://localhost, http://evil.test"),
    ("CO-07 raw bytes", b"http://\xff\xfe"),
)
@pytest.mark.parametrize("http", ["POST", "GET", "DELETE", "OPTIONS"])
def test_another_origin_is_forbidden_whatever_the_method(
    client: McpClient, origin: str | bytes, http: str
) -> None:
    """wire §0.16."""
    headers = {"Origin": origin, "Access-Control-Request-Method": "POST"}
    reply = client.ask("tools/list", headers=headers, http=http)
    assert reply.status == 403
    assert reply.response.json()["error"]["code"] == -31403
    assert "allowed_origins" in reply.response.json()["error"]["message"]
    assert not [name for name, _ in reply.response.headers if name.startswith("access-control")]


@rows(
    "origin, allowed",
    ("CO-07 exact", APP, True),
    ("CO-07 upper case", APP.upper(), True),
    ("CO-07 listed with port", "http://plain.example.com:3000", True),
    ("CO-09 the public URL itself", "https://mcp.example.com", True),
    ("CO-07 other scheme", "http://app.example.com", False),
    ("CO-07 other port", f"{APP}:8443", False),
    ("CO-07 without the listed port", "http://plain.example.com", False),
    ("CO-07 suffix", f"{APP}.evil.test", False),
    ("CO-07 prefix", "https://evil-app.example.com", False),
    ("CO-07 sub-domain", "https://x.app.example.com", False),
    ("CO-07 null", "null", False),
)
def test_a_deployed_server_serves_the_origins_it_lists(
    deployed: ServerProcess, origin: str, allowed: bool
) -> None:
    reply = deployed.client.ask("tools/list", headers={"Origin": origin})
    assert reply.status == (200 if allowed else 403)


def test_the_default_port_may_be_written_out(deployed: ServerProcess) -> None:
    """CO-07: documented as equal, and at least never an error of another kind."""
    assert deployed.client.ask("tools/list", headers={"Origin": f"{APP}:443"}).status in (200, 403)


def test_two_origins_are_none(deployed: ServerProcess) -> None:
    """CO-07."""
    reply = deployed.client.ask("tools/list", headers={"Origin": APP}, extra=[("Origin", APP)])
    assert reply.outcome == (403, -31403)


def preflight(server: ServerProcess, origin: str, headers: str, method: str = "POST") -> Response:
    """The answer to what a browser asks before it sends."""
    with server.client.connect() as connection:
        return connection.exchange(
            Request(
                method="OPTIONS",
                headers=[
                    ("Host", server.client.authority),
                    ("Origin", origin),
                    ("Access-Control-Request-Method", method),
                    ("Access-Control-Request-Headers", headers),
                ],
            )
        )


def listed(response: Response, name: str) -> set[str]:
    """The members of a list-valued header, in lower case."""
    values = ",".join(response.header_values(name)).split(",")
    return {value.strip().lower() for value in values} - {""}


def test_a_preflight_is_answered_without_credentials(deployed: ServerProcess) -> None:
    """CO-01, CO-02, wire §2 preflight."""
    response = preflight(deployed, APP, ASKED)
    assert response.status in (200, 204)
    assert response.header("access-control-allow-origin") == APP
    assert set(ASKED.split(",")) <= listed(response, "access-control-allow-headers")
    assert "post" in listed(response, "access-control-allow-methods")
    assert "origin" in listed(response, "vary")


def test_any_parameter_header_may_be_asked_for_and_no_other(deployed: ServerProcess) -> None:
    """CO-02: the answer must not tell which parameters hidden tools declare."""
    response = preflight(deployed, APP, "Mcp-Param-Zzz, mcp-param-region, x-evil, cookie")
    allowed = listed(response, "access-control-allow-headers")
    assert {"mcp-param-zzz", "mcp-param-region"} <= allowed
    assert not {"x-evil", "cookie"} & allowed


def test_a_preflight_cannot_put_its_own_text_into_the_answer(deployed: ServerProcess) -> None:
    """CO-02."""
    response = preflight(deployed, APP, "mcp-param-a b, mcp-param-, mcp-param-<script>, \tx")
    text = ",".join(response.header_values("access-control-allow-headers"))
    assert "<" not in text and "a b" not in text


def test_an_origin_that_is_not_listed_gets_no_preflight(deployed: ServerProcess) -> None:
    """CO-04."""
    response = preflight(deployed, "https://evil.test", ASKED)
    assert response.status == 403
    assert response.header("access-control-allow-origin") is None


def test_answers_to_browsers_name_the_origin_and_vary_by_it(deployed: ServerProcess) -> None:
    """CO-04, wire §2 CORS: and expose what MCP puts into headers."""
    for reply in (
        deployed.client.ask("tools/list", headers={"Origin": APP}),
        deployed.client.ask("foo/bar", headers={"Origin": APP}),
        deployed.client.ask("tools/list", headers={"Origin": APP}, body=b"{"),
        deployed.client.ask("tools/list", headers={"Origin": APP, "Content-Type": "text/plain"}),
    ):
        response = reply.response
        assert response.header("access-control-allow-origin") == APP
        assert "origin" in listed(response, "vary")
        assert response.header("access-control-allow-credentials") is None
        assert response.header("access-control-expose-headers"), response.headers


def test_mirrored_parameters_are_exposed_to_browsers(deployed: ServerProcess) -> None:
    """CO-02."""
    headers = {"Origin": APP, "Mcp-Param-Region": "eu"}
    reply = deployed.client.call("in_region", {"region": "eu"}, headers)
    assert reply.header("mcp-param-region") == "eu"
    assert "mcp-param-region" in listed(reply.response, "access-control-expose-headers")


def test_streams_carry_the_same_headers(deployed: ServerProcess) -> None:
    """CO-04."""
    with deployed.client.listening(headers={"Origin": APP}) as stream:
        assert stream.response.header("access-control-allow-origin") == APP


def test_without_an_origin_there_is_no_cors(deployed: ServerProcess) -> None:
    """CO-04."""
    response = deployed.client.ask("tools/list").response
    assert response.header("access-control-allow-origin") is None


def test_an_origin_is_not_compared_with_the_host(client: McpClient) -> None:
    """CO-06: a rebound DNS name makes both equal."""
    reply = client.ask(
        "tools/list", headers={"Origin": "http://evil.test:8000"}, host="evil.test:8000"
    )
    assert reply.status in (403, 421)


@rows(
    "host",
    ("CO-09 loopback", "127.0.0.1"),
    ("CO-09 loopback, mapped port", "localhost:8080"),
    ("CO-09 IPv6 loopback", "[::1]:8000"),
    ("CO-09 upper case", "LOCALHOST"),
)
def test_loopback_names_are_served_by_default(client: McpClient, host: str) -> None:
    assert client.ask("tools/list", host=host).status == 200


@rows(
    "host",
    ("CO-09 the public name", "mcp.example.com"),
    ("CO-09 the public name, port", "mcp.example.com:443"),
    ("CO-09 a service's name", "app:8000"),
    ("CO-09 a listed pattern", "one.internal.example"),
    ("CO-09 port mapping", "localhost:8080"),
)
def test_a_deployed_server_is_reached_by_its_names(deployed: ServerProcess, host: str) -> None:
    assert deployed.client.ask("tools/list", host=host).status == 200


@rows(
    "host",
    ("wire §2 host bad", "evil.test"),
    ("CO-09 garbage", "a b"),
    ("CO-09 loopback as prefix", "localhost.evil.test"),
    ("CO-09 user part", "localhost@evil.test"),
    ("CO-09 suffix of the public name", "mcp.example.com.evil.test"),
    ("CO-09 the pattern's own parent", "internal.example"),
    ("CO-09 empty", ""),
    ("CO-09 raw bytes", "ev\xefl"),
)
def test_another_host_is_refused_by_an_answer_that_names_the_setting(
    deployed: ServerProcess, host: str
) -> None:
    reply = deployed.client.ask("tools/list", host=host)
    assert reply.status in (400, 403, 421)
    assert reply.code == -31000 - reply.status
    assert "allowed_hosts" in reply.error["message"]


def test_a_refused_host_is_logged_with_the_setting(deployed: ServerProcess) -> None:
    """CO-09."""
    mark = deployed.log_mark()
    deployed.client.ask("tools/list", host="forgotten.example")
    deployed.wait_for_log(lambda log: "allowed_hosts" in str(log), after=mark)


def test_a_request_without_host_is_refused(client: McpClient) -> None:
    """RFC 9112, section 3.2; and two hosts are none."""
    request = client.request("tools/list", {}, {"Host": None})
    assert client.send(request).status in (400, 403, 421)
    twice = client.request("tools/list", extra=[("Host", "evil.test")])
    assert client.send(twice).status in (400, 403, 421)


@pytest.mark.parametrize("host", ["10.1.2.3:8000", "evil.test", "probe"])
@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_probes_may_name_any_host(deployed: ServerProcess, path: str, host: str) -> None:
    """CO-09."""
    assert deployed.client.get(path, {"Host": host}).status == 200


def test_forwarded_headers_of_strangers_mean_nothing(client: McpClient) -> None:
    """CO-09: only a trusted proxy can say which host was asked for."""
    headers = {"X-Forwarded-Host": "evil.test", "Forwarded": "host=evil.test"}
    assert client.ask("tools/list", headers=headers).status == 200
    assert client.ask(
        "tools/list", headers={"X-Forwarded-Host": "localhost"}, host="evil.test"
    ).status in (403, 421)
