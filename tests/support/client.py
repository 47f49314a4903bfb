"""MCP requests as bytes, and what came back, checked before any test looks at it."""

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from tests.support.http1 import Connection, Headers, Request, Response
from tests.support.schema import META, VERSION, check_message
from tests.support.sse import SseReader
from tests.support.waiting import Deadline

BOTH: Final = "application/json, text/event-stream"
Json = Any
HeaderChanges = Mapping[str, str | bytes | None]


def encode(value: Json) -> bytes:
    """Compact JSON; what the encoder cannot say (NaN, a key twice) a test writes as bytes."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8")


def sentinel(text: str) -> str:
    """`text` as the Base64 form of a header value."""
    return f"=?base64?{base64.b64encode(text.encode('utf-8')).decode('ascii')}?="


def header_value(value: Json) -> str:
    """A parameter's value as its `Mcp-Param-*` header has it."""
    text = json.dumps(value) if isinstance(value, bool | int) else str(value)
    plain = text.isascii() and text.isprintable() and text == text.strip()
    return text if plain and not text.startswith("=?base64?") else sentinel(text)


def meta(**changes: Json) -> dict[str, Json]:
    """`_meta` of a modern request; a change to None removes, names get the usual prefix.

    `progressToken` and names with a slash are taken as they are.
    """
    base: dict[str, Json] = {f"{META}protocolVersion": VERSION, f"{META}clientCapabilities": {}}
    for name, value in changes.items():
        key = name if "/" in name or name in ("progressToken", "traceparent") else META + name
        base[key] = value
        if value is None:
            del base[key]
    return base


_DEFAULT: Final[Any] = object()


def body_of(
    method: str,
    params: Mapping[str, Json] | None = None,
    *,
    id: Json = 1,
    meta_: Mapping[str, Json] | None = None,
) -> dict[str, Json]:
    """The JSON-RPC object of a modern request; a `meta_` of None is the usual one."""
    own = dict(params or {})
    own.setdefault("_meta", meta() if meta_ is None else dict(meta_))
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": own}


def modern_request(
    method: str,
    params: Mapping[str, Json] | None = None,
    headers: HeaderChanges | None = None,
    *,
    id: Json = 1,
    meta_: Mapping[str, Json] | None = None,
    body: bytes | Json = _DEFAULT,
    extra: Headers = (),
    http: str = "POST",
    path: str = "/mcp",
    host: str = "127.0.0.1",
) -> Request:
    """A modern request.

    Args:
        headers: replaces headers (compared without case); None removes one.
        body: the body in place of the usual one, as bytes or as JSON.
        extra: header lines after the others, for copies.
    """
    params = {} if params is None else params
    lines: dict[str, str | bytes | None] = {
        "Host": host,
        "Content-Type": "application/json",
        "Accept": BOTH,
        "MCP-Protocol-Version": VERSION,
        "Mcp-Method": method,
    }
    if method == "tools/call" and isinstance(params.get("name"), str):
        lines["Mcp-Name"] = header_value(params["name"])
    for name, value in (headers or {}).items():
        same = next((own for own in lines if own.lower() == name.lower()), name)
        lines.pop(same, None)
        lines[name] = value
    if body is _DEFAULT:
        body = body_of(method, params, id=id, meta_=meta_)
    return Request(
        method=http,
        path=path,
        headers=[*((name, value) for name, value in lines.items() if value is not None), *extra],
        body=body if isinstance(body, bytes) else encode(body),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An HTTP response and the JSON-RPC messages in it."""

    response: Response
    messages: Sequence[dict[str, Json]] = field(default_factory=tuple)

    @property
    def status(self) -> int:
        """HTTP status."""
        return self.response.status

    @property
    def streamed(self) -> bool:
        """Whether it came as an event stream."""
        return self.response.media_type == "text/event-stream"

    def header(self, name: str) -> str | None:
        """One response header."""
        return self.response.header(name)

    @property
    def last(self) -> dict[str, Json]:
        """The last message, which is the response."""
        assert self.messages, f"no message: {self.response}"
        return self.messages[-1]

    @property
    def result(self) -> dict[str, Json]:
        """The result."""
        assert "result" in self.last, f"not a result ({self.status}): {self.last}"
        return self.last["result"]  # type: ignore[no-any-return]

    @property
    def error(self) -> dict[str, Json]:
        """The error."""
        assert "error" in self.last, f"not an error ({self.status}): {str(self.last)[:2000]}"
        return self.last["error"]  # type: ignore[no-any-return]

    @property
    def code(self) -> int | None:
        """The error's code; None when it is a result."""
        return self.last["error"]["code"] if "error" in self.last else None

    @property
    def outcome(self) -> tuple[int, int | None]:
        """HTTP status and error code."""
        return self.status, self.code

    @property
    def text(self) -> str:
        """All text blocks of a tool's result."""
        blocks = self.result["content"]
        return "\n".join(block["text"] for block in blocks if block["type"] == "text")

    @property
    def value(self) -> Json:
        """`structuredContent` of a call that succeeded."""
        assert not self.is_error, f"the tool failed: {self.text}"
        return self.result["structuredContent"]

    @property
    def is_error(self) -> bool:
        """Whether the tool failed."""
        return bool(self.result.get("isError", False))

    def notifications(self, method: str) -> list[dict[str, Json]]:
        """`params` of the notifications of one method."""
        return [each["params"] for each in self.messages if each.get("method") == method]


def check_reply(response: Response, method: str, messages: Sequence[Json]) -> None:
    """Hold messages and the response that carried them against specification and rules."""
    streamed = response.media_type == "text/event-stream"
    for message in messages:
        check_message(message, method=method, status=response.status, streamed=streamed)


def check_stream_headers(response: Response) -> None:
    """An event stream must pass proxies unbuffered, unchanged and uncached."""
    assert response.status == 200, response
    assert response.header("x-accel-buffering") == "no", response.headers
    assert response.header("content-encoding") is None, response.headers
    assert "no-" in (response.header("cache-control") or ""), response.headers
    assert response.header("mcp-session-id") is None, response.headers


class Stream:
    """A response that is read as it comes."""

    def __init__(self, connection: Connection, response: Response, method: str) -> None:
        self.connection, self.response, self._method = connection, response, method
        check_stream_headers(response)
        assert response.stream is not None
        self.reader = SseReader(response.stream)

    def next(self, timeout_s: float = 10.0) -> dict[str, Json]:
        """The next message; it must come."""
        message = self.reader.next_message(timeout_s)
        assert message is not None, "the stream ended"
        check_reply(self.response, self._method, [message])
        return message

    def rest(self, timeout_s: float = 10.0) -> list[dict[str, Json]]:
        """All messages until the stream ends."""
        messages = self.reader.rest(timeout_s)
        check_reply(self.response, self._method, messages)
        return messages

    def close(self) -> None:
        """Close the connection, as a client does that has lost interest."""
        self.connection.close()


class McpClient:
    """Requests to one server, each on a connection of its own unless one is passed."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port

    @property
    def authority(self) -> str:
        """`host:port`, for the Host header."""
        return f"{self.host}:{self.port}"

    def connect(self, timeout_s: float = 10.0) -> Connection:
        """A new connection."""
        return Connection(self.host, self.port, timeout_s)

    def request(
        self, method: str, params: Json = None, headers: Json = None, **how: Any
    ) -> Request:
        """`modern_request` with this server's Host."""
        how.setdefault("host", self.authority)
        return modern_request(method, params, headers, **how)

    def send(
        self,
        request: Request,
        *,
        connection: Connection | None = None,
        method: str = "",
        timeout_s: float = 10.0,
    ) -> Reply:
        """Send a request made before and read the whole answer."""
        if connection is None:
            with self.connect(timeout_s) as own:
                own.send(request.encode())
                return read_reply(own, method, http=request.method, timeout_s=timeout_s)
        connection.send(request.encode())
        return read_reply(connection, method, http=request.method, timeout_s=timeout_s)

    def ask(
        self,
        method: str,
        params: Json = None,
        headers: HeaderChanges | None = None,
        *,
        connection: Connection | None = None,
        timeout_s: float = 10.0,
        **how: Any,
    ) -> Reply:
        """Send a modern request and read the whole answer; `how` as in `modern_request`."""
        request = self.request(method, params, headers, **how)
        return self.send(request, connection=connection, method=method, timeout_s=timeout_s)

    def call(
        self,
        tool: str,
        arguments: Json = _DEFAULT,
        headers: HeaderChanges | None = None,
        **how: Any,
    ) -> Reply:
        """Call a tool. Without `arguments` the key is left out."""
        params = {"name": tool}
        if arguments is not _DEFAULT:
            params["arguments"] = arguments
        return self.ask("tools/call", params, headers, **how)

    def tools(self, **how: Any) -> dict[str, dict[str, Json]]:
        """Every tool by its name, over all pages."""
        found: dict[str, dict[str, Json]] = {}
        cursor: str | None = None
        for _ in range(100):
            result = self.ask("tools/list", {"cursor": cursor} if cursor else {}, **how).result
            found |= {tool["name"]: tool for tool in result["tools"]}
            cursor = result.get("nextCursor")
            if cursor is None:
                return found
        raise AssertionError("tools/list does not end")

    def get(
        self, path: str, headers: HeaderChanges | None = None, *, http: str = "GET"
    ) -> Response:
        """A plain request without a body."""
        lines = {"Host": self.authority, **(headers or {})}
        kept = [(name, value) for name, value in lines.items() if value is not None]
        with self.connect() as connection:
            return connection.exchange(Request(method=http, path=path, headers=kept))

    def stream_on(self, connection: Connection, request: Request, method: str) -> Stream:
        """Send on a connection and read the answer as a stream; it must be one."""
        connection.send(request.encode())
        response = connection.open_response()
        if response.media_type != "text/event-stream":
            assert response.stream is not None
            body = response.stream.read_all(Deadline(10.0))
            raise AssertionError(f"not a stream: {response} {body[:2000]!r}")
        return Stream(connection, response, method)

    @contextmanager
    def stream(
        self, method: str, params: Json = None, headers: HeaderChanges | None = None, **how: Any
    ) -> Iterator[Stream]:
        """A request whose answer is read as it comes."""
        with self.connect() as connection:
            yield self.stream_on(connection, self.request(method, params, headers, **how), method)

    @contextmanager
    def listen(
        self, notifications: Json = None, headers: HeaderChanges | None = None, **how: Any
    ) -> Iterator[Stream]:
        """A `subscriptions/listen` stream; by default for changes of the tools."""
        wanted = {"toolsListChanged": True} if notifications is None else notifications
        params = {"notifications": wanted}
        with self.stream("subscriptions/listen", params, headers, **how) as stream:
            yield stream

    @contextmanager
    def listening(self, **how: Any) -> Iterator[Stream]:
        """A listen stream that has been acknowledged."""
        with self.listen(**how) as stream:
            first = stream.next()
            assert first["method"] == "notifications/subscriptions/acknowledged", first
            yield stream


def read_reply(
    connection: Connection, method: str, *, http: str = "POST", timeout_s: float = 10.0
) -> Reply:
    """Read the next response on a connection, whole, and check every message in it."""
    deadline = Deadline(timeout_s)
    response = connection.open_response(to=http, deadline=deadline)
    messages: list[Json] = []
    if response.stream is None:
        return Reply(response=response)
    if response.media_type == "text/event-stream":
        check_stream_headers(response)
        reader = SseReader(response.stream)
        messages = reader.rest(deadline.remaining_s)
        reader.assert_one_terminator()
        response.body = reader.raw
    else:
        response.body = response.stream.read_all(deadline)
        if response.media_type == "application/json" and http == "POST":
            messages = [response.json()]
        elif http == "POST":
            assert not response.body, f"a body that is not JSON: {response}"
    check_reply(response, method, messages)
    return Reply(response=response, messages=messages)
