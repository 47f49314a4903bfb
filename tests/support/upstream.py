"""A server behind a balancer that answers with what has reached it."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    owner: "Upstream"

    def do_GET(self) -> None:
        ready = self.owner.is_ready
        self._answer(200 if ready else 503, {"ready": ready})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        with self.owner.lock:
            self.owner.requests += 1
        if b'"hold"' in body:
            self._hold()
            return
        self._answer(
            200,
            {
                "at": self.owner.address,
                "path": self.path,
                "headers": [[name.lower(), value] for name, value in self.headers.items()],
                "connection": self.client_address[1],
                "bytes": len(body),
            },
        )

    def _hold(self) -> None:
        """A stream that goes on until it is released."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"7\r\n: one\n\n\r\n")
        with self.owner.lock:
            self.owner.holding += 1
        self.owner.released.wait(30)
        self.wfile.write(b"7\r\n: two\n\n\r\n0\r\n\r\n")

    def _answer(self, status: int, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's
        """Nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went is nothing to speak of."""


class Upstream:
    """It answers a POST with path, headers and the client's port, as JSON.

    Attributes:
        is_ready: What it says when it is asked for its readiness.
        requests: How many POSTs have reached it.
        holding: How many streams it has begun; a body with `"hold"` begins one.
        released: Ends them.
    """

    def __init__(self) -> None:
        handler = type("Handler", (_Handler,), {"owner": self})
        self._server = _Server(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), daemon=True
        )
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        self.lock = threading.Lock()
        self.is_ready = True
        self.requests = 0
        self.holding = 0
        self.released = threading.Event()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
