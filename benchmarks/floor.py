"""The floor: a raw ASGI application that parses the JSON body and sends a fixed answer.

uvicorn with uvloop and httptools, access log off, everything else as uvicorn ships it. No routing,
no checks, no log. Nothing written in Python over ASGI can be much cheaper, so every figure is given
as a multiple of it.

    python -m benchmarks.floor PORT ANSWERS

ANSWERS is a JSON file of request path to answer text. `/listen` opens an event stream that waits
for `/change`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

import orjson

from benchmarks.asgi import serve

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_ACKNOWLEDGED = b'data: {"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged"}\n\n'
_CHANGED = b'data: {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n\n'


class Floor:
    """The fixed answers, and the one thing that a listener waits for."""

    def __init__(self, answers: dict[str, bytes]) -> None:
        self._answers = {
            path: (
                {
                    "type": "http.response.start",
                    "status": 200,
                    "headers": [
                        (b"content-type", b"application/json"),
                        (b"content-length", str(len(body)).encode()),
                    ],
                },
                {"type": "http.response.body", "body": body},
            )
            for path, body in answers.items()
        }
        self._changed = asyncio.Event()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        body = b""
        while True:
            message = await receive()
            body += message["body"]
            if not message["more_body"]:
                break
        if body:  # a load balancer asks with GET whether it is there
            orjson.loads(body)
        path = scope["path"]
        if path == "/listen":
            await self._listen(send)
            return
        if path == "/change":
            changed, self._changed = self._changed, asyncio.Event()
            changed.set()
        start, end = self._answers[path]
        await send(start)
        await send(end)

    async def _listen(self, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": _ACKNOWLEDGED, "more_body": True})
        while True:
            await self._changed.wait()
            await send({"type": "http.response.body", "body": _CHANGED, "more_body": True})


def main(port: int, answers: Path) -> None:
    """Serve until terminated."""
    bodies = {path: text.encode() for path, text in json.loads(answers.read_text()).items()}
    serve(Floor(bodies), port, lifespan="off")


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
