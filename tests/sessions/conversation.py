"""A client of the `initialize` era that can be wrong on purpose; every message to it is judged."""

import contextlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

import httpx2

from tests.auth.office import Headers
from tests.support import legacy_schema
from tests.support.server import ServerProcess

BOTH: Final = "application/json, text/event-stream"
CLIENT: Final = {"name": "an old client", "version": "1"}
EVERYTHING: Final[dict[str, Any]] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}},
    "roots": {"listChanged": True},
}
Json = Any


@dataclass(frozen=True, slots=True)
class Event:
    """One server-sent event.

    Attributes:
        message: None where it had no data.
    """

    message: dict[str, Json] | None
    id: str | None = None
    retry: int | None = None


def events(response: httpx2.Response) -> Iterator[Event]:
    """The events of a stream as they come; comments are left out."""
    fields: dict[str, str] = {}
    for line in response.iter_lines():
        if line.startswith(":"):
            continue
        if line:
            name, _, value = line.partition(":")
            fields[name] = value.removeprefix(" ")
        elif fields:
            data = fields.get("data", "")
            retry = int(fields["retry"]) if "retry" in fields else None
            yield Event(json.loads(data) if data else None, fields.get("id"), retry)
            fields = {}


@dataclass(frozen=True, slots=True)
class Answer:
    """What a POST got: the HTTP response and every message in it."""

    response: httpx2.Response
    messages: Sequence[dict[str, Json]] = ()

    @property
    def status(self) -> int:
        return self.response.status_code

    @property
    def last(self) -> dict[str, Json]:
        assert self.messages, self.response.text
        return self.messages[-1]

    @property
    def result(self) -> dict[str, Json]:
        assert "result" in self.last, self.last
        found: dict[str, Json] = self.last["result"]
        return found

    @property
    def code(self) -> int | None:
        error = self.last.get("error")
        return error["code"] if error else None

    @property
    def text(self) -> str:
        return "".join(block.get("text", "") for block in self.result["content"])


@dataclass
class Conversation:
    """One client and its session.

    Attributes:
        servers: Each request goes to the next one of them.
        said: Every message of the server outside of responses.
    """

    servers: Sequence[ServerProcess]
    version: str = "2025-11-25"
    who: Headers = field(default_factory=dict)
    token: str | None = None
    said: list[dict[str, Json]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._next = itertools.cycle(self.servers)
        self._ids = itertools.count(1)
        self._http = httpx2.Client(timeout=20, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    @property
    def url(self) -> str:
        return next(self._next).url

    def headers(self, changes: Mapping[str, str | None] | None = None) -> dict[str, str]:
        """Of a request in the session."""
        lines: dict[str, str | None] = {"Accept": BOTH, "Content-Type": "application/json"}
        if self.version >= "2025-06-18" and self.token is not None:
            lines["MCP-Protocol-Version"] = self.version
        lines["Mcp-Session-Id"] = self.token
        lines |= {name: str(value) for name, value in self.who.items()}
        lines |= changes or {}
        return {name: value for name, value in lines.items() if value is not None}

    def open(
        self, capabilities: Mapping[str, Json] | None = None, **headers: str | None
    ) -> dict[str, Json]:
        """`initialize`, then `notifications/initialized`; the result of the first."""
        params = {
            "protocolVersion": self.version,
            "capabilities": EVERYTHING if capabilities is None else capabilities,
            "clientInfo": CLIENT,
        }
        self.token = None
        how: Any = headers
        answer = self.ask("initialize", params, **how)
        self.token = answer.response.headers["mcp-session-id"]
        assert self.notify("notifications/initialized").status_code == 202
        return answer.result

    def message(self, method: str, params: Json = None, id: Json = None) -> dict[str, Json]:
        """A request with an id of its own."""
        body = {"jsonrpc": "2.0", "id": next(self._ids) if id is None else id, "method": method}
        return body if params is None else {**body, "params": params}

    def post(self, body: Json, **headers: str | None) -> httpx2.Response:
        """Send anything and read the whole answer."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self._http.post(self.url, content=content, headers=self.headers(headers))

    def notify(self, method: str, params: Json = None) -> httpx2.Response:
        """Send a notification."""
        message = {"jsonrpc": "2.0", "method": method}
        return self.post(message if params is None else {**message, "params": params})

    @contextlib.contextmanager
    def stream(
        self, method: str, params: Json = None, *, id: Json = None, **headers: str | None
    ) -> Iterator[tuple[httpx2.Response, Iterator[Event]]]:
        """Send a request and read what comes, piece by piece."""
        body = json.dumps(self.message(method, params, id)).encode()
        with self._http.stream(
            "POST", self.url, content=body, headers=self.headers(headers)
        ) as response:
            yield response, self._judged(response)

    def ask(
        self,
        method: str,
        params: Json = None,
        *,
        answers: Mapping[str, Json] | None = None,
        id: Json = None,
        **headers: str | None,
    ) -> Answer:
        """Send a request and read all that comes; questions are answered from a table by method."""
        with self.stream(method, params, id=id, **headers) as (response, found):
            if response.headers.get("content-type", "").startswith("text/event-stream"):
                messages = []
                for event in found:
                    if event.message is None:
                        continue
                    messages.append(event.message)
                    if "method" in event.message and "id" in event.message:
                        self.answer(event.message, (answers or {})[event.message["method"]])
            else:
                response.read()
                messages = [response.json()] if response.content else []
            for message in messages:
                self.judge(message, method)
            return Answer(response, messages)

    def call(self, tool: str, arguments: Json = None, **how: Any) -> Answer:
        """Call a tool."""
        params = {"name": tool, "arguments": arguments or {}, **how.pop("params", {})}
        return self.ask("tools/call", params, **how)

    def answer(self, request: Mapping[str, Json], result: Json) -> httpx2.Response:
        """Answer a request of the server; a callable gets the request."""
        given = result(request) if callable(result) else result
        member = "error" if isinstance(given, dict) and "code" in given else "result"
        response = self.post({"jsonrpc": "2.0", "id": request["id"], member: given})
        assert response.status_code == 202, response.text
        return response

    @contextlib.contextmanager
    def get(self, **headers: str | None) -> Iterator[tuple[httpx2.Response, Iterator[Event]]]:
        """The stream of a session."""
        lines = self.headers({"Accept": "text/event-stream", "Content-Type": None, **headers})
        with self._http.stream("GET", self.url, headers=lines) as response:
            yield response, self._judged(response)

    def end(self) -> httpx2.Response:
        """DELETE."""
        return self._http.delete(self.url, headers=self.headers({"Content-Type": None}))

    def judge(self, message: dict[str, Json], method: str) -> None:
        """Hold a message against the revision."""
        if "method" in message:
            if "id" in message:
                legacy_schema.check_request(message, self.version)
            else:
                legacy_schema.check_notification(message, self.version)
        elif "error" in message:
            if "id" in message:
                legacy_schema.check_error(message, self.version)
            legacy_schema.check_nothing_modern(message)
        else:
            legacy_schema.check_result(message["result"], method, self.version)

    def _judged(self, response: httpx2.Response) -> Iterator[Event]:
        for event in events(response):
            if event.message is not None and "method" in event.message:
                self.judge(event.message, "")
                self.said.append(event.message)
            yield event
