"""Three real replicas behind each balancer: one table of expectations for all of them."""

import json
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.deploy.conftest import address_of
from tests.interop.support import only_text
from tests.support.balancers import BALANCERS, Balancer, Pools
from tests.support.certificates import Certificate
from tests.support.client import McpClient, encode, meta, modern_request, sentinel
from tests.support.http1 import Request, Response
from tests.support.schema import META, VERSION
from tests.support.server import ServerProcess
from tests.support.upstream import Upstream
from tests.support.waiting import eventually, eventually_lines

OLD: Final = "2025-11-25"
SOON_S: Final = 2.0
MIB: Final = 1 << 20


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    """The pool for the EU: it answers with what has reached it."""
    with Upstream() as found:
        yield found


@pytest.fixture(scope="module", params=BALANCERS, ids=lambda kind: kind.name)
def balancer(
    request: pytest.FixtureRequest,
    replicas: list[ServerProcess],
    upstream: Upstream,
    certificate: Certificate,
) -> Iterator[Balancer]:
    one, two, three = map(address_of, replicas)
    pools = Pools(replicas=(one, two, three), heavy=three, eu=upstream.address)
    with request.param(pools, certificate) as found:
        yield found


@pytest.fixture
def client(balancer: Balancer) -> McpClient:
    return balancer.client()


def call(name: str, arguments: Any = None, headers: Any = None, **how: Any) -> Request:
    """A call of a tool."""
    params = {"name": name, "arguments": arguments or {}}
    return modern_request("tools/call", params, headers, host="localhost", **how)


def to_eu(client: McpClient, headers: Any = None) -> dict[str, Any]:
    """What reaches a server of a request with these headers."""
    request = call("execute_sql", {}, {"Mcp-Param-Region": "eu-west1", **(headers or {})})
    with client.connect() as connection:
        response = connection.exchange(request)
    assert response.status == 200, response
    seen: dict[str, Any] = response.json()
    seen["answer"] = response
    return seen


def values(seen: dict[str, Any], name: str) -> list[str]:
    """All values of a header that reached the server."""
    return [value for key, value in seen["headers"] if key == name]


# -- what passes ----------------------------------------------------------------------


def server_of(client: McpClient, tool: str = "echo") -> str:
    """The name of the server that runs a tool."""
    arguments = {"text": "x"} if tool == "echo" else {}
    name: str = client.call(tool, arguments).result["_meta"][f"{META}serverInfo"]["name"]
    return name


def test_every_replica_gets_a_share(client: McpClient) -> None:
    names: set[str] = set()

    def has_all() -> bool:
        names.add(server_of(client))
        return len(names) == 3

    eventually(has_all, "three replicas answer")


async def test_the_official_client_lists_and_calls(
    balancer: Balancer, certificate: Certificate
) -> None:
    async with (
        httpx2.AsyncClient(verify=certificate.context(), trust_env=False) as http,
        Client(streamable_http_client(balancer.url, http_client=http)) as client,
    ):
        tools = {tool.name for tool in (await client.list_tools()).tools}
        result = await client.call_tool("echo", {"text": "hello"})

    assert "echo" in tools
    assert only_text(result) == "hello"


@pytest.mark.parametrize("path", ["/mcp", "/mcp/", "/mcp?x=1"])
def test_every_spelling_of_the_endpoint_is_served(client: McpClient, path: str) -> None:
    """RT-01, RT-04."""
    assert client.call("echo", {"text": path}, path=path).text == path


@pytest.mark.parametrize(
    "path",
    [
        *("/mcpx", "/mcp/x", "/", "/healthz", "/readyz", "/metrics", "/admin", "/stats"),
        *("/.well-known/other", "/.well-known/oauth-protected-resourcex", "/elicit"),
    ],
)
def test_nothing_else_is_there(balancer: Balancer, path: str) -> None:
    """RT-04; health and administration are not for clients."""
    mark = balancer.mark()
    response = balancer.client().get(path, {"X-Request-Id": "nowhere"})
    entry = balancer.entry(lambda each: each["request_id"] == "nowhere", mark)

    assert response.status == 404
    assert response.json()["error"]["code"] == -31404
    assert entry["replica"] in ("<NOSRV>", "", None), "no server was asked"


@pytest.mark.parametrize(
    "path",
    [
        "/.well-known/oauth-protected-resource",
        "/.well-known/oauth-protected-resource/mcp",
        "/elicit/some-handle",
    ],
)
def test_metadata_and_pages_come_from_the_server(balancer: Balancer, path: str) -> None:
    mark = balancer.mark()
    balancer.client().get(path, {"X-Request-Id": "passed"})
    entry = balancer.entry(lambda each: each["request_id"] == "passed", mark)

    assert entry["pool"] == "calls"
    assert entry["replica"].rpartition(":")[0] == "127.0.0.1" or "replica" in entry["replica"]


def test_paths_cannot_climb_to_what_is_not_for_clients(client: McpClient) -> None:
    for path in ("/elicit/../readyz", "/elicit/%2e%2e/readyz", "/elicit/..%2freadyz", "//readyz"):
        assert client.get(path).status in (400, 404), path


# -- streams --------------------------------------------------------------------------


def test_an_event_arrives_before_the_next_one_is_made(client: McpClient, tmp_path: Path) -> None:
    notes, release = tmp_path / "notes", tmp_path / "release"
    arguments = {"path": str(notes), "release": str(release), "progress": True}
    params = {"name": "wait", "arguments": arguments}
    with client.stream("tools/call", params, meta_=meta(progressToken=1)) as stream:
        assert stream.next()["method"] == "notifications/progress"
        release.touch()
        assert stream.next()["result"]["content"][0]["text"] == "released"


def test_a_listener_is_acknowledged_at_once(balancer: Balancer) -> None:
    mark = balancer.mark()
    with balancer.client().listen() as stream:
        assert stream.next()["method"] == "notifications/subscriptions/acknowledged"
    entry = balancer.entry(lambda each: each["mcp_method"] == "subscriptions/listen", mark)

    assert entry["pool"] == "streams"


@pytest.mark.parametrize("leave", ["close", "reset"])
@pytest.mark.parametrize("progress", [True, False], ids=["streaming", "before the first byte"])
def test_a_client_that_goes_cancels_its_call(
    client: McpClient, tmp_path: Path, leave: str, *, progress: bool
) -> None:
    """CX-01, CX-02."""
    notes = tmp_path / "notes"
    params = {"name": "wait", "arguments": {"path": str(notes), "progress": progress}}
    connection = client.connect()
    connection.send(client.request("tools/call", params, meta_=meta(progressToken=1)).encode())
    eventually(notes.exists, "the call has begun")
    if progress:
        connection.open_response()
    getattr(connection, leave)()

    assert len(eventually_lines(notes, "cancelled", SOON_S)) == 2


# -- who says so ----------------------------------------------------------------------


FORGED: Final = {
    "X-Forwarded-For": "10.9.8.7",
    "X-Forwarded-Proto": "gopher",
    "X-Forwarded-Host": "evil.example.com",
    "X-Forwarded-Port": "1",
    "X-Forwarded-Server": "evil",
    "X-Forwarded-Prefix": "/evil",
    "X-Forwarded-User": "root",
    "Forwarded": "for=10.9.8.7;proto=gopher",
    "X-Real-IP": "10.9.8.7",
    "X-Client-IP": "10.9.8.7",
    "X-Cluster-Client-IP": "10.9.8.7",
    "True-Client-IP": "10.9.8.7",
    "CF-Connecting-IP": "10.9.8.7",
    "X-Original-URL": "/readyz",
    "X-Rewrite-URL": "/readyz",
    "Proxy": "http://10.9.8.7",
}


def test_what_clients_say_of_themselves_is_not_passed_on(balancer: Balancer) -> None:
    seen = to_eu(balancer.client("127.0.0.7"), FORGED)

    assert values(seen, "x-forwarded-for") == ["127.0.0.7"]
    assert values(seen, "x-forwarded-proto") == ["https"]
    assert values(seen, "x-forwarded-host") == ["localhost"]
    told = ("x-forwarded-for", "x-forwarded-proto", "x-forwarded-host")
    assert [
        name for name in map(str.lower, FORGED) if values(seen, name) and name not in told
    ] == []
    assert "10.9.8.7" not in str(seen["headers"])


def test_the_server_counts_the_address_that_the_balancer_saw(
    balancer: Balancer, replicas: list[ServerProcess]
) -> None:
    marks = [each.log_mark() for each in replicas]
    server = replicas[int(server_of(balancer.client("127.0.0.9"))[-1]) - 1]
    server.wait_for_log(lambda log: log.get("address") == "127.0.0.9")
    with balancer.client("127.0.0.9").connect() as connection:
        connection.exchange(call("echo", {"text": "x"}, FORGED))

    def addresses() -> set[str]:
        new = (
            log for each, mark in zip(replicas, marks, strict=True) for log in each.logs()[mark:]
        )
        return {log["address"] for log in new if log.get("event") == "request"}

    eventually(lambda: "127.0.0.9" in addresses(), "the calls are logged")
    assert "10.9.8.7" not in addresses()


def test_what_the_protocol_and_the_login_need_passes_unchanged(client: McpClient) -> None:
    sent = {
        "Authorization": "Bearer abc.def",
        "X-API-Key": "mts_x_y",
        "Mcp-Param-Greeting": sentinel("Grüße"),
        "Last-Event-ID": "7",
        "Origin": "https://app.example.com",
        "Accept": "application/json, text/event-stream",
    }
    seen = to_eu(client, sent)

    assert {name: values(seen, name.lower()) for name in sent} == {
        name: [value] for name, value in sent.items()
    }
    assert values(seen, "mcp-protocol-version") == [VERSION]
    assert values(seen, "mcp-method") == ["tools/call"]
    assert values(seen, "mcp-name") == ["execute_sql"]
    assert values(seen, "host") == ["localhost"]


# -- ids ------------------------------------------------------------------------------


def test_a_request_id_is_passed_on_logged_and_returned(balancer: Balancer) -> None:
    mark = balancer.mark()
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    seen = to_eu(balancer.client(), {"X-Request-Id": "mine-1.2_3", "traceparent": trace})
    entry = balancer.entry(lambda each: each["request_id"] == "mine-1.2_3", mark)

    assert values(seen, "x-request-id") == ["mine-1.2_3"]
    assert values(seen, "traceparent") == [trace]
    assert entry["trace"] == trace
    assert seen["answer"].header("x-request-id") == "mine-1.2_3"


def test_a_request_without_an_id_gets_one(client: McpClient) -> None:
    first, second = to_eu(client), to_eu(client)

    assert len(values(first, "x-request-id")[0]) >= 32
    assert values(first, "x-request-id") == [first["answer"].header("x-request-id")]
    assert values(first, "x-request-id") != values(second, "x-request-id")


def test_an_id_of_another_form_is_replaced(balancer: Balancer) -> None:
    mark = balancer.mark()
    seen = to_eu(balancer.client(), {"X-Request-Id": "x" * 65, "traceparent": "nonsense"})
    (id,) = values(seen, "x-request-id")

    if balancer.name == "envoy":  # it passes on what it gets, and cuts it in its log
        balancer.entry(lambda each: each["request_id"] == "x" * 64, mark)
    else:
        assert "xxx" not in id
        assert values(seen, "traceparent") == []
        balancer.entry(lambda each: each["request_id"] == id, mark)


# -- where it goes --------------------------------------------------------------------


def version(text: str | None) -> dict[str, str | None]:
    return {"MCP-Protocol-Version": text}


REGION: Final = "Mcp-Param-Region"
HEAVY: Final = "export_report"
PLACES: Final = [
    pytest.param("echo", {}, "calls", id="any tool"),
    pytest.param(HEAVY, {}, "heavy", id="a heavy tool"),
    pytest.param("render_chart", {}, "heavy", id="another heavy tool"),
    pytest.param(HEAVY, {"Mcp-Name": sentinel(HEAVY)}, "heavy", id="a heavy tool, encoded"),
    pytest.param(HEAVY, version(OLD), "calls", id="an older revision does not vouch for the name"),
    pytest.param(HEAVY, version(None), "calls", id="nor does no revision"),
    pytest.param(HEAVY, version("2026-07-28x"), "calls", id="nor one that is not known"),
    pytest.param(HEAVY, {"Mcp-Method": "tools/list"}, "calls", id="a name is that of a call alone"),
    pytest.param("execute_sql", {REGION: "eu-west1"}, "eu", id="a region"),
    pytest.param("execute_sql", {REGION: sentinel("eu-west1")}, "eu", id="a region, encoded"),
    pytest.param(
        "execute_sql",
        {REGION: sentinel("eu-west1"), "Mcp-Name": sentinel("execute_sql")},
        "eu",
        id="all encoded",
    ),
    pytest.param("execute_sql", {REGION: "us-west1"}, "calls", id="another region"),
    pytest.param("execute_sql", {REGION: "EU-WEST1x"}, "calls", id="no region"),
    pytest.param("execute_sql", {}, "calls", id="no region given"),
    pytest.param("echo", {REGION: "eu-west1"}, "calls", id="a region that the tool does not have"),
    pytest.param(
        "execute_sql", {REGION: "eu-west1", **version(OLD)}, "calls", id="an older region"
    ),
]


@pytest.mark.parametrize(("name", "headers", "pool"), PLACES)
def test_headers_choose_the_pool_where_the_server_checks_them(
    balancer: Balancer, name: str, headers: dict[str, str | None], pool: str
) -> None:
    mark = balancer.mark()
    with balancer.client().connect() as connection:
        connection.exchange(call(name, {}, {"X-Request-Id": "placed", **headers}))
    entry = balancer.entry(lambda each: each["request_id"] == "placed", mark)

    assert entry["pool"] == pool


def test_a_pool_has_servers_of_its_own(balancer: Balancer) -> None:
    client = balancer.client()

    assert {server_of(client, "export_report") for _ in range(6)} == {"replica-3"}
    assert to_eu(client)["at"] == balancer.pools.eu


def test_a_header_that_lies_is_refused_wherever_it_leads(client: McpClient) -> None:
    reply = client.call("echo", {"text": "x"}, {"Mcp-Name": "export_report"})

    assert reply.outcome == (400, -32020)


def test_an_older_client_is_served_whatever_its_headers_say(client: McpClient) -> None:
    """Nothing compares them with the body, and nothing is decided by them."""
    headers = {"MCP-Protocol-Version": OLD, "Mcp-Name": "export_report", "Mcp-Method": "tools/call"}
    body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    with client.connect() as connection:
        response = connection.exchange(
            modern_request("ping", {}, headers, body=body, host="localhost")
        )

    assert response.status < 500


def test_streams_of_earlier_revisions_go_to_the_pool_of_streams(balancer: Balancer) -> None:
    mark = balancer.mark()
    balancer.client().get("/mcp", {"Accept": "text/event-stream", "X-Request-Id": "old-stream"})
    entry = balancer.entry(lambda each: each["request_id"] == "old-stream", mark)

    assert entry["pool"] == "streams"


# -- the log --------------------------------------------------------------------------


def test_the_log_says_what_was_asked_and_no_more(balancer: Balancer) -> None:
    mark = balancer.mark()
    secret = {"Authorization": "Bearer s3cret-token", "X-Request-Id": "logged"}
    request = call(
        "execute_sql",
        {"region": "us-west1"},
        {REGION: "us-west1", **secret},
        path="/mcp?access_token=s3cret",
    )
    with balancer.client("127.0.0.8").connect() as connection:
        assert connection.exchange(request).status == 200
    entry = balancer.entry(lambda each: each["request_id"] == "logged", mark)

    assert entry["address"] == "127.0.0.8"
    assert (entry["http"], entry["path"], entry["status"]) == ("POST", "/mcp", 200)
    assert entry["mcp_protocol_version"] == VERSION
    assert entry["mcp_method"] == "tools/call"
    assert entry["mcp_name"] == "execute_sql"
    assert entry["mcp_param_region"] == "us-west1"
    assert entry["tls"].startswith("TLSv1.")
    assert "s3cret" not in "\n".join(balancer.lines(mark))


@pytest.mark.parametrize(
    "value",
    [
        '"quoted"',
        "back\\slash",
        "a\ttab",
        '","status":200,"x":"',
        "${jndi:ldap://x}",
        "%[src]%n",
        "\xff\xfe",
        "grün",
        "=?base64?" + "A" * 20,
        "x" * 20_000,
    ],
    ids=lambda value: value[:12],
)
def test_no_header_breaks_out_of_its_line(balancer: Balancer, value: str) -> None:
    mark = balancer.mark()
    request = call("echo", {}, {"Mcp-Name": value, REGION: value, "X-Request-Id": "hostile"})
    with balancer.client().connect() as connection:
        assert 400 <= connection.exchange(request).status < 500
    client = balancer.client()
    client.call("echo", {"text": "x"}, {"X-Request-Id": "after"})
    balancer.entry(lambda each: each["request_id"] == "after", mark)

    for line in balancer.lines(mark):
        entry = json.loads(line)
        assert entry["status"] in (200, 400)
        assert len(line) < 2000
        assert len(entry["mcp_name"] or "") <= 128 * 6


@pytest.mark.parametrize("byte", [b"\x00", b"\x01", b"\x1b[31m", b"\x7f"])
def test_control_characters_do_not_reach_the_log(balancer: Balancer, byte: bytes) -> None:
    mark = balancer.mark()
    request = call("echo", {}, {"Mcp-Name": b"a" + byte + b"b", "X-Request-Id": "control"})
    with balancer.client().connect() as connection:
        assert connection.exchange(request).status == 400
    balancer.client().call("echo", {"text": "x"}, {"X-Request-Id": "after"})
    balancer.entry(lambda each: each["request_id"] == "after", mark)

    text = "\n".join(balancer.lines(mark))
    assert byte.decode("latin-1") not in text
    assert all(isinstance(json.loads(line), dict) for line in text.splitlines())


# -- sizes ----------------------------------------------------------------------------


def body_of(size: int) -> bytes:
    """A call with a body of exactly so many bytes."""
    rest = len(encode(json.loads(call("echo", {"text": ""}).body)))
    return call("echo", {"text": "x" * (size - rest)}).body


def test_the_largest_body_that_the_server_takes_passes(client: McpClient) -> None:
    request = call("echo", body=body_of(4 * MIB))
    with client.connect() as connection:
        response = connection.exchange(request)

    assert response.status == 200, "the result is too large, which is the tool's affair"
    assert b"echo" in response.body or response.json()["result"]["isError"]


def announced(client: McpClient, request: Request) -> Response:
    with client.connect() as connection:
        return connection.exchange(request)


def chunked(client: McpClient, request: Request) -> Response:
    with client.connect() as connection:
        connection.send(request.encode_chunked(65536))
        return connection.read_response()


@pytest.mark.parametrize("send", [announced, chunked])
def test_a_larger_body_is_refused_in_json(client: McpClient, send: Any) -> None:
    """RT-06."""
    response = send(client, call("echo", body=body_of(4 * MIB + 1)))

    assert response.status == 413
    assert response.json()["error"]["code"] == -31413


def test_a_long_header_passes_and_a_longer_head_does_not(balancer: Balancer) -> None:
    client = balancer.client()
    assert client.call("echo", {"text": "x"}, {"X-Long": "x" * 40_000}).text == "x"
    with client.connect() as connection:
        response = connection.exchange(call("echo", {"text": "x"}, {"X-Long": "x" * 80_000}))

    if balancer.name == "haproxy":  # its words for this cannot be changed
        assert response.status == 400
    else:
        assert response.status == 431
        assert response.json()["error"]["code"] == -31431


# -- connections ----------------------------------------------------------------------


def test_connections_to_replicas_are_used_again(client: McpClient) -> None:
    request = call("execute_sql", {}, {REGION: "eu-west1"})
    with client.connect() as connection:
        used = [connection.exchange(request).json()["connection"] for _ in range(12)]

    assert len(set(used)) <= 3, used


@pytest.mark.parametrize("protocol", ["h2", "http/1.1"])
def test_clients_choose_http_2_or_not(balancer: Balancer, protocol: str) -> None:
    context = balancer.certificate.context()
    context.set_alpn_protocols([protocol])
    with (
        socket.create_connection(("127.0.0.1", balancer.port), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secure,
    ):
        assert secure.selected_alpn_protocol() == protocol
        assert secure.version() == "TLSv1.3"


def curl_speaks_http_2() -> bool:
    if shutil.which("curl") is None:
        return False
    about = subprocess.run(["curl", "--version"], capture_output=True, text=True, check=True)
    return "HTTP2" in about.stdout


@pytest.mark.skipif(not curl_speaks_http_2(), reason="needs a curl with HTTP/2")
def test_streams_and_cancellation_work_over_http_2(balancer: Balancer, tmp_path: Path) -> None:
    notes, release = tmp_path / "notes", tmp_path / "release"
    arguments = {"path": str(notes), "release": str(release), "progress": True}
    request = call("wait", arguments, meta_=meta(progressToken=1))
    headers = [part for name, value in request.headers for part in ("-H", f"{name}: {value!s}")]
    command = ["curl", "-sS", "-N", "--http2", "-w", "\n%{http_version}\n", "--data-binary", "@-"]
    trust = ["--cacert", str(balancer.certificate.authority)]

    def start() -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [*command, *trust, *headers, balancer.url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(request.body)
        process.stdin.close()
        assert b"notifications/progress" in process.stdout.readline()
        return process

    with start() as process:
        release.touch()
        assert process.stdout is not None
        rest = process.stdout.read()
    assert b"released" in rest
    assert rest.strip().endswith(b"2")

    release.unlink()
    notes.unlink()
    with start() as process:
        process.kill()
    assert len(eventually_lines(notes, "cancelled", SOON_S)) == 2
