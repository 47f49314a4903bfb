"""HTTP before MCP: methods, media types, paths, sizes, time limits, bytes in pieces."""

import json
from typing import Any

import pytest

from tests.support.cases import rows
from tests.support.client import BOTH, McpClient, body_of, read_reply
from tests.support.http1 import Connection, ConnectionEndedError, Request
from tests.support.server import ServerFactory, ServerProcess

MIB = 1_048_576


@rows(
    "sent",
    ("wire §2 content type", "application/json"),
    ("wire §2 content type: charset", "application/json; charset=utf-8"),
    ("wire §2 content type: other charset", "application/json;charset=latin-1"),
    ("wire §2 content type: case", "Application/JSON"),
    ("wire §2 content type: bare semicolon", "application/json;"),
    ("wire §2 content type: space", "application/json ; v=1"),
)
def test_a_content_type_of_json_is_accepted(client: McpClient, sent: str) -> None:
    assert client.ask("tools/list", headers={"Content-Type": sent}).status == 200


@rows(
    "sent",
    ("wire §2 content type missing", None),
    ("wire §2 content type empty", ""),
    ("wire §2 content type text", "text/plain"),
    ("wire §2 content type in a parameter", "text/plain; a=application/json"),
    ("wire §2 content type json-rpc", "application/json-rpc"),
    ("wire §2 content type list", "application/json, text/plain"),
    ("wire §2 content type wildcard", "application/*"),
    ("wire §2 content type form", "application/x-www-form-urlencoded"),
)
def test_another_content_type_is_refused(client: McpClient, sent: str | None) -> None:
    reply = client.ask("tools/list", headers={"Content-Type": sent})
    assert reply.outcome == (415, -31415)


@pytest.mark.parametrize("coding", ["gzip", "br", "deflate", "gzip, identity"])
def test_a_compressed_body_is_refused(client: McpClient, coding: str) -> None:
    """wire §0.8 content encoding."""
    reply = client.ask("tools/list", headers={"Content-Encoding": coding})
    assert reply.outcome == (415, -31415)


JSON, SSE = "application/json", "text/event-stream"


@rows(
    "sent, answered",
    ("wire §2 accept both", BOTH, {JSON}),
    ("wire §2 accept anything", "*/*", {JSON, SSE}),
    ("wire §2 accept wildcards", "application/*, text/*;q=0.5", {JSON, SSE}),
    ("wire §2 accept case", "APPLICATION/JSON, TEXT/EVENT-STREAM", {JSON, SSE}),
    ("wire §2 accept order", "text/event-stream, application/json", {JSON, SSE}),
    ("wire §2 accept q", "application/json;q=0.5, text/event-stream;q=0.1", {JSON, SSE}),
    ("wire §2 accept missing", None, {JSON, SSE}),
    ("wire §2 accept only json", "application/json", {JSON}),
    ("wire §2 accept only sse", "text/event-stream", {SSE}),
    ("wire §2 accept only application", "application/*", {JSON}),
    ("wire §2 accept only text", "text/*", {SSE}),
    ("wire §2 accept with charset", "application/json; charset=utf-8", {JSON}),
    ("wire §2 accept a browser's", "text/html,application/xml;q=0.9,*/*;q=0.8", {JSON, SSE}),
    ("wire §2 accept q=0 for json", "application/json;q=0, text/event-stream", {SSE}),
    ("wire §2 accept q=0.000 for sse", "text/event-stream;q=0.000, application/json", {JSON}),
    ("HD-19 wildcard but not json", "*/*, application/json;q=0", {SSE}),
)
def test_a_client_gets_what_it_accepts(
    client: McpClient, sent: str | None, answered: set[str]
) -> None:
    for reply in (
        client.ask("tools/list", headers={"Accept": sent}),
        client.call("echo", {"text": "t"}, {"Accept": sent}),
    ):
        assert reply.status == 200
        assert reply.response.media_type in answered
        assert "result" in reply.last


@rows(
    "sent",
    ("wire §2 accept html", "text/html"),
    ("wire §2 accept q=0", "application/json;q=0"),
    ("wire §2 accept q=0 for all", "*/*;q=0"),
    ("HD-19 both with q=0", "application/json;q=0.0, text/event-stream;q=0"),
)
def test_when_nothing_fits_the_answer_is_406(client: McpClient, sent: str) -> None:
    reply = client.ask("tools/list", headers={"Accept": sent})
    assert reply.outcome == (406, -31406)


def test_accept_on_two_lines_is_one_list(client: McpClient) -> None:
    """wire §2 accept two lines, HD-19."""
    reply = client.ask("tools/list", headers={"Accept": "text/html"}, extra=[("Accept", JSON)])
    assert reply.response.media_type == JSON
    with client.listening(headers={"Accept": JSON}, extra=[("Accept", SSE)]):
        pass


@pytest.mark.parametrize("path", ["/mcp", "/mcp/"])
@rows(
    "method",
    ("wire §2 GET", "GET"),
    ("wire §2 DELETE", "DELETE"),
    ("wire §2 PUT", "PUT"),
    ("wire §2 PATCH", "PATCH"),
    ("wire §2 OPTIONS", "OPTIONS"),
    ("wire §2 HEAD", "HEAD"),
    ("wire §2 a method of nobody", "BREW"),
)
def test_only_post_is_allowed_and_the_answer_says_so(
    client: McpClient, method: str, path: str
) -> None:
    response = client.get(path, {"MCP-Protocol-Version": "2026-07-28"}, http=method)
    assert response.status == 405 or (method, response.status) in (("OPTIONS", 204), ("BREW", 400))
    if response.status == 400:  # the HTTP parser may not know the method at all
        return
    assert "POST" in (response.header("allow") or "")
    if method == "HEAD":
        assert response.body == b""
    elif response.status == 405:
        assert response.json()["error"]["code"] == -31405
        assert "id" not in response.json()


@pytest.mark.parametrize("accept", ["text/event-stream", "*/*"])
def test_a_get_without_a_session_is_answered_at_once(client: McpClient, accept: str) -> None:
    """ST-11: neither a silent stream nor 200."""
    response = client.get("/mcp", {"Accept": accept})
    assert response.status == 405
    assert "POST" in (response.header("allow") or "")
    assert len(response.body) < 1000


@rows(
    "http, body, headers",
    ("RT-01 a list", "POST", None, {}),
    ("RT-01 no token needed, one sent", "POST", None, {"Authorization": "Bearer x"}),
    ("RT-01 a parse error", "POST", b"{", {}),
    ("RT-01 a mismatch", "POST", None, {"Mcp-Method": "x"}),
    ("RT-01 a wrong type", "POST", None, {"Content-Type": "text/plain"}),
    ("RT-01 a wrong method", "DELETE", b"", {}),
)
def test_a_final_slash_changes_nothing(
    client: McpClient, http: str, body: bytes | None, headers: dict[str, str]
) -> None:
    how: dict[str, Any] = {} if body is None else {"body": body}
    answers = [
        client.ask(
            "tools/list",
            headers={**headers, "X-Forwarded-Proto": "https"},
            http=http,
            path=path,
            **how,
        ).response
        for path in ("/mcp", "/mcp/", "/mcp?x=1")
    ]
    assert len({(answer.status, answer.body) for answer in answers}) == 1
    assert answers[0].status not in range(300, 400)


@pytest.mark.parametrize("path", ["/mcpx", "/", "/mcp/mcp", "/mcp/x", "/MCP", "/%6dcp/.."])
def test_another_path_is_not_found(client: McpClient, path: str) -> None:
    """RT-04 within the server itself."""
    reply = client.ask("tools/list", path=path)
    assert reply.status == 404


def padded(client: McpClient, size: int, **how: str) -> Request:
    """A call whose body has exactly `size` bytes."""
    bare = len(
        client.request("tools/call", {"name": "give_large", "arguments": {"count": ""}}).body
    )
    filler = {"count": "x" * (size - bare)}
    return client.request("tools/call", {"name": "give_large", "arguments": filler}, **how)


@pytest.mark.parametrize("size", [300_000, MIB - 1, MIB])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_within_the_limit_is_read(client: McpClient, size: int, chunked: bool) -> None:
    """RT-06."""
    request = padded(client, size)
    with client.connect() as connection:
        connection.send(request.encode_chunked(8192) if chunked else request.encode())
        assert read_reply(connection, "tools/call").status == 200


@pytest.mark.parametrize("size", [MIB + 1, 2 * MIB])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_over_the_limit_is_refused(client: McpClient, size: int, chunked: bool) -> None:
    """wire §1 over limit, RT-06."""
    request = padded(client, size)
    with client.connect() as connection:
        connection.send(request.encode_chunked(8192) if chunked else request.encode())
        assert read_reply(connection, "tools/call").outcome == (413, -31413)


def test_a_declared_length_over_the_limit_is_refused_before_the_body_comes(
    client: McpClient,
) -> None:
    """wire §1 oversized Content-Length."""
    headers = [*client.request("tools/list").headers, ("Content-Length", str(3 * MIB))]
    with client.connect() as connection:
        connection.send(Request(headers=headers, content_length=False).head())
        assert read_reply(connection, "tools/list").outcome == (413, -31413)


def test_a_chunked_body_without_end_is_cut_off(client: McpClient) -> None:
    """RT-06: the answer comes while the client still sends."""
    head = client.request("tools/list", body=b"").encode_chunked().removesuffix(b"0\r\n\r\n")
    with client.connect() as connection:
        connection.send(head)
        connection.send(b"10000\r\n%s\r\n" % (b" " * 65536) * 17)
        assert read_reply(connection, "tools/list").outcome == (413, -31413)


def test_a_length_that_is_too_small_hurts_only_its_sender(client: McpClient) -> None:
    """RT-06: what is left over is not a request, and not part of one. Either may be told first."""
    good = client.request("tools/list")
    headers = [*good.headers, ("Content-Length", "10")]
    with client.connect() as connection:
        connection.send(Request(headers=headers, content_length=False).head() + good.body)
        assert read_reply(connection, "tools/list").outcome in ((400, -32700), (400, -32600))
    assert client.ask("tools/list").status == 200


def test_a_body_that_breaks_off_is_no_request(client: McpClient, server: ServerProcess) -> None:
    """A half-closed connection within the body ends it: answered with 4xx, or just closed."""
    mark = server.log_mark()
    request = client.request("tools/list")
    with client.connect() as connection:
        connection.send(request.encode()[:-10])
        connection.half_close()
        assert b" 200 " not in connection.expect_end()
    assert not [log for log in server.logs()[mark:] if log.get("level") in ("error", "critical")]


@rows(
    "headers",
    ("wire §0.17 one long header", [("X-Long", "x" * 70_000)]),
    ("wire §0.17 many headers", [(f"X-{n}", "x" * 90) for n in range(900)]),
    ("wire §0.17 a long Mcp-Name", [("Mcp-Name", "x" * 70_000)]),
)
def test_a_head_over_the_limit_is_refused(
    client: McpClient, headers: list[tuple[str, str]]
) -> None:
    reply = client.ask("tools/list", extra=headers)
    assert reply.outcome == (431, -31431)


@pytest.mark.parametrize("first", [100, 60_000, 85_000])
def test_a_head_over_the_limit_is_refused_in_whatever_pieces_it_comes(
    client: McpClient, first: int
) -> None:
    request = client.request("tools/list", extra=[(f"X-{n}", "x" * 90) for n in range(900)])
    data = request.encode()
    with client.connect() as connection:
        connection.send_pieces([data[:first], data[first:]])
        assert read_reply(connection, "tools/list").outcome == (431, -31431)


def test_a_head_within_the_limit_is_read(client: McpClient) -> None:
    """wire §0.17."""
    assert client.ask("tools/list", extra=[("X-Long", "x" * 40_000)]).status == 200


@rows(
    "sent",
    ("wire §0.17 a header without end", b"POST /mcp HTTP/1.1\r\nX: " + b"x" * 300_000),
    ("wire §0.17 a path without end", b"POST /" + b"x" * 300_000),
    ("wire §0.17 headers without end", b"POST /mcp HTTP/1.1\r\n" + b"X-A: b\r\n" * 40_000),
)
def test_a_head_that_never_ends_is_cut_off(client: McpClient, sent: bytes) -> None:
    with client.connect() as connection:
        connection.send(sent)
        answer = connection.expect_end()
    status = answer.split(b" ", 2)[1:2]
    assert status in ([b"431"], [b"414"], [b"400"], []), answer[:200]


@pytest.fixture(scope="module")
def hasty(module_server_factory: ServerFactory) -> ServerProcess:
    """A server that waits half a second for a head or a body, and a second for another request."""
    return module_server_factory(
        config={
            "server": {"request_timeout_s": 0.5, "keep_alive_s": 1.0},
            "tools": {"reload": False},
        }
    )


@rows(
    "kept_back",
    ("wire §0.17 a slow head", 400),
    ("wire §0.17 a slow body", 10),
    ("RT-06 slow-loris in the request line", 9999),
)
def test_a_request_that_does_not_arrive_in_time_is_given_up(
    hasty: ServerProcess, kept_back: int
) -> None:
    sent = hasty.client.request("tools/list").encode()
    with hasty.client.connect() as connection:
        connection.send(sent[: max(3, len(sent) - kept_back)])
        answer = connection.expect_end(5.0)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 408 "), answer[:200]


def test_bytes_that_trickle_in_do_not_extend_the_deadline(hasty: ServerProcess) -> None:
    """wire §0.17: the deadline is for the whole head, not for each byte."""
    with hasty.client.connect(0.05) as connection:
        connection.send(b"POST /mcp HTTP/1.1\r\n")
        for _ in range(60):  # 0.05 s each: three seconds, six times the deadline
            connection.send(b"X-A: b\r\n")
            if ended_by_now(connection):
                return
    raise AssertionError("the server still reads a head after six times its deadline")


def ended_by_now(connection: Connection) -> bool:
    """Whether the peer closed or answered; waits no longer than the connection's time limit."""
    connection.socket.settimeout(connection.timeout_s)
    try:
        return connection.socket.recv(65536) is not None
    except TimeoutError:
        return False
    except ConnectionResetError:
        return True


def test_an_idle_connection_is_closed(hasty: ServerProcess) -> None:
    with hasty.client.connect() as connection:
        assert hasty.client.ask("tools/list", connection=connection).status == 200
        assert connection.expect_end(5.0) == b""


def test_requests_follow_each_other_on_one_connection(client: McpClient) -> None:
    with client.connect() as connection:
        for number in range(20):
            reply = client.call("echo", {"text": str(number)}, connection=connection, id=number)
            assert (reply.value, reply.last["id"]) == (str(number), number)


def test_an_error_does_not_end_the_connection(client: McpClient) -> None:
    with client.connect() as connection:
        for _ in range(3):
            assert client.ask("foo/bar", connection=connection).status == 404
            assert client.ask("tools/list", body=b"{", connection=connection).status == 400
            assert client.ask("tools/list", connection=connection).status == 200


def test_two_requests_in_one_segment_are_answered_in_order(client: McpClient) -> None:
    first, second = (client.request("tools/list", id=number) for number in (1, 2))
    with client.connect() as connection:
        connection.send(first.encode() + second.encode())
        assert read_reply(connection, "tools/list").last["id"] == 1
        assert read_reply(connection, "tools/list").last["id"] == 2


@pytest.mark.parametrize("chunked", [False, True])
def test_a_request_may_arrive_byte_by_byte(client: McpClient, chunked: bool) -> None:
    request = client.request("tools/call", {"name": "echo", "arguments": {"text": "é€😀"}})
    sent = request.encode_chunked(7) if chunked else request.encode()
    with client.connect() as connection:
        connection.send_split(sent[at : at + 1] for at in range(len(sent)))
        assert read_reply(connection, "tools/call").value == "é€😀"


def test_a_request_may_be_split_anywhere(client: McpClient) -> None:
    sent = client.request("tools/call", {"name": "echo", "arguments": {"text": "é"}}).encode()
    with client.connect() as connection:
        for at in range(1, len(sent)):
            connection.send_split((sent[:at], sent[at:]))
            assert read_reply(connection, "tools/call").value == "é", f"split at {at}"


def test_a_client_that_asks_before_it_sends_is_told_to_continue(client: McpClient) -> None:
    """curl sends `Expect: 100-continue` with large bodies."""
    request = client.request("tools/list", headers={"Expect": "100-continue"})
    with client.connect() as connection:
        connection.send(request.head())
        assert connection.open_response(to="HEAD").status == 100
        connection.send(request.body)
        assert read_reply(connection, "tools/list").status == 200


H2C = {
    "Connection": "Upgrade, HTTP2-Settings",
    "Upgrade": "h2c",
    "HTTP2-Settings": "AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA",
}


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("pieces", [1, 2, 9999])
def test_a_client_that_offers_another_protocol_is_served_in_this_one(
    client: McpClient, chunked: bool, pieces: int
) -> None:
    """Java's HTTP client sends this offer with every request; a server may ignore it, but then
    the body is still part of the request (RFC 9110, section 7.8).
    """
    request = client.request("tools/call", {"name": "echo", "arguments": {"text": "t"}}, H2C)
    sent = request.encode_chunked(20) if chunked else request.encode()
    after_head = sent.index(b"\r\n\r\n") + 4
    cuts = {1: [], 2: [after_head], 9999: list(range(1, len(sent)))}[pieces]
    with client.connect() as connection:
        for _ in range(2):
            ends = zip([0, *cuts], [*cuts, len(sent)], strict=True)
            connection.send_split(sent[start:end] for start, end in ends)
            assert read_reply(connection, "tools/call").value == "t"


@rows(
    "sent",
    ("noise", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(64))),
    ("a header without a colon", b"POST /mcp HTTP/1.1\r\nHost\r\n\r\n"),
    ("a negative length", b"POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n"),
    ("two lengths", b"POST /mcp HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"),
    ("a bad chunk", b"POST /mcp HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n"),
)
def test_what_is_not_http_ends_the_connection_and_nothing_else(
    client: McpClient, sent: bytes
) -> None:
    with client.connect() as connection:
        connection.send(sent)
        connection.half_close()
        answer = connection.expect_end()
    assert answer == b"" or answer.split(b" ")[1].startswith(b"4"), answer[:200]
    assert client.ask("tools/list").status == 200


def test_a_client_that_goes_at_once_leaves_no_trace(client: McpClient) -> None:
    for data in (b"", b"POST", client.request("tools/list").head()):
        connection = client.connect()
        connection.send(data)
        connection.reset()
    with client.connect() as connection:
        connection.half_close()
        with pytest.raises(ConnectionEndedError):
            read_reply(connection, "tools/list")
    assert client.ask("tools/list").status == 200


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_health_says_no_more_than_whether_it_is_well(client: McpClient, path: str) -> None:
    response = client.get(path)
    assert response.status == 200
    assert len(response.body) < 64
    assert client.get(path, http="HEAD").body == b""


def test_json_may_be_written_in_any_of_its_forms(client: McpClient) -> None:
    body = body_of("tools/call", {"name": "echo", "arguments": {"text": "\u20ac/"}})
    spaced = json.dumps(body, indent=2).replace("/", "\\/").encode()
    reply = client.ask("tools/call", {"name": "echo"}, body=b"\n" + spaced + b"\r\n ")
    assert reply.value == "\u20ac/"
