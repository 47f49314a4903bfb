"""Requests as the bytes that a client sends, and answers as bytes read back.

The client speaks revision 2026-07-28, or an older one in a session.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

VERSION = "2026-07-28"
OLDER = "2025-11-25"
_META = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientInfo": {"name": "benchmark", "version": "1.0.0"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def post(
    path: str,
    port: int,
    method: str,
    params: Mapping[str, Any],
    *,
    name: str | None = None,
    token: str | None = None,
) -> bytes:
    """One complete HTTP/1.1 request.

    The headers are those of a common HTTP client plus the ones that the revision requires.
    """
    body = json.dumps(
        {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": _META}},
        separators=(",", ":"),
    ).encode()
    head = [
        f"POST {path} HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        "Accept: application/json, text/event-stream",
        "Accept-Encoding: identity",
        "Connection: keep-alive",
        "User-Agent: benchmark/1.0",
        "Content-Type: application/json",
        f"MCP-Protocol-Version: {VERSION}",
        f"Mcp-Method: {method}",
        *([f"Mcp-Name: {name}"] if name is not None else []),
        *([f"Authorization: Bearer {token}"] if token is not None else []),
        f"Content-Length: {len(body)}",
    ]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


def in_session(
    path: str, port: int, method: str, params: Mapping[str, Any], session: str | None
) -> bytes:
    """One complete HTTP/1.1 request of an older revision; without a session it may open one."""
    body = json.dumps(
        {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}, separators=(",", ":")
    ).encode()
    head = [
        f"POST {path} HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        "Accept: application/json, text/event-stream",
        "Accept-Encoding: identity",
        "Connection: keep-alive",
        "User-Agent: benchmark/1.0",
        "Content-Type: application/json",
        *([f"MCP-Protocol-Version: {OLDER}", f"Mcp-Session-Id: {session}"] if session else []),
        f"Content-Length: {len(body)}",
    ]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


def call(
    path: str, port: int, tool: str, arguments: Mapping[str, Any], token: str | None = None
) -> bytes:
    """A `tools/call`."""
    params = {"name": tool, "arguments": arguments}
    return post(path, port, "tools/call", params, name=tool, token=token)


def listing(path: str, port: int, token: str | None = None) -> bytes:
    """A `tools/list` of the first page."""
    return post(path, port, "tools/list", {}, token=token)


def listen(path: str, port: int) -> bytes:
    """A `subscriptions/listen` for changes of the tool list."""
    return post(path, port, "subscriptions/listen", {"notifications": {"toolsListChanged": True}})


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer: HTTP status, decoded body, and the body's length in bytes."""

    status: int
    body: Any
    size: int


class Reader:
    """Tells when an answer on one connection is complete, as cheaply as Python allows.

    Reads HTTP/1.1 with `Content-Length`, and `chunked` as far as these servers use it.
    """

    __slots__ = ("_chunked", "_kept", "_missing")

    def __init__(self) -> None:
        self._missing = 0
        self._chunked = False
        self._kept = b""

    def feed(self, data: bytes, expected: bytes) -> bool:
        """Take in `data`; true when the answer ended with it.

        Raises:
            RuntimeError: the status is not `expected` (three digits).
        """
        if self._missing:
            self._missing -= len(data)
            return self._missing <= 0
        if self._chunked:
            self._kept = self._kept[-4:] + data
            self._chunked = not self._kept.endswith(b"0\r\n\r\n")
            return not self._chunked
        data = self._kept + data
        end = data.find(b"\r\n\r\n")
        if end < 0:
            self._kept = data
            return False
        self._kept = b""
        if data[9:12] != expected:
            raise RuntimeError(f"expected {expected.decode()}, got: {data[:600]!r}")
        head = data[:end].lower()
        at = head.find(b"content-length:")
        if at < 0:
            self._kept = data[-5:]
            self._chunked = not data.endswith(b"0\r\n\r\n")
            return not self._chunked
        stop = head.find(b"\r\n", at)
        length = int(head[at + 15 : stop if stop > 0 else end])
        self._missing = length - (len(data) - end - 4)
        return self._missing <= 0


def parse(raw: bytes) -> Answer:
    """Decode one complete answer, for the check that precedes timing."""
    head, _, body = raw.partition(b"\r\n\r\n")
    if b"chunked" in head.lower():
        rest, body = body, b""
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            length = int(size, 16)
            body, rest = body + rest[:length], rest[length + 2 :]
    if b"text/event-stream" in head.lower():
        lines = [line[5:].strip() for line in body.splitlines() if line.startswith(b"data:")]
        decoded = json.loads(lines[-1])
    else:
        decoded = json.loads(body)
    return Answer(int(head[9:12]), decoded, len(body))
