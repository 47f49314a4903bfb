"""A server on loopback that speaks as Open-Meteo's geocoding and forecast services do."""

import json
import threading
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import parse_qsl, urlsplit

PARIS: Final = {
    "id": 2988507,
    "name": "Paris",
    "latitude": 48.85341,
    "longitude": 2.3488,
    "elevation": 42.0,
    "feature_code": "PPLC",
    "country_code": "FR",
    "timezone": "Europe/Paris",
    "population": 2138551,
    "country": "France",
    "admin1": "Île-de-France",
}
PARIS_TEXAS: Final = {
    "id": 4717560,
    "name": "Paris",
    "latitude": 33.66094,
    "longitude": -95.55551,
    "country_code": "US",
    "timezone": "America/Chicago",
    "country": "United States",
    "admin1": "Texas",
}
NULL_ISLAND: Final = {"id": 1, "name": "Null Island", "latitude": 0.0, "longitude": 0.0}

PLACES: Final[Mapping[str, Sequence[Mapping[str, Any]]]] = {
    "paris": (PARIS, PARIS_TEXAS),
    "75001": (PARIS,),
    "null island": (NULL_ISLAND,),
}

CURRENT: Final[Mapping[float, Mapping[str, Any]]] = {
    48.85341: {"temperature_2m": 21.4, "relative_humidity_2m": 63, "weather_code": 2},
    33.66094: {"temperature_2m": 88.5, "relative_humidity_2m": 40, "weather_code": 95},
    0.0: {"temperature_2m": -1.0, "relative_humidity_2m": 100, "weather_code": 42},
}

# What a search for the name on the left answers: status, type and body.
FAULTS: Final[Mapping[str, tuple[int, bytes]]] = {
    "an error": (400, b'{"error":true,"reason":"Parameter count must be between 1 and 100."}'),
    "a crash": (500, b"<html>Internal Server Error</html>"),
    "a limit": (429, b'{"error":true,"reason":"Minutely API request limit exceeded."}'),
    "a redirect": (302, b""),
    "not json": (200, b"<html>Welcome to the hotel network</html>"),
    "another shape": (200, b'{"results":[{"name":"Paris"}]}'),
    "a list": (200, b"[]"),
    "nothing": (200, b""),
    "too much": (200, b'{"results":[' + b" " * 2_000_000 + b"]}"),
    "not utf-8": (200, b'{"results":"\xff"}'),
}


class OpenMeteo:
    """The server, from `with` to its end.

    Searching for a name in `FAULTS` gets that answer, `silence` none until the end.
    """

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.parents: list[str | None] = []
        self.ended = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever)

    @property
    def url(self) -> str:
        """Base of both services."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def asked(self, path: str) -> dict[str, str]:
        """The query of the last request to one path."""
        return next(query for asked, query in reversed(self.requests) if asked == path)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, path: str, query: dict[str, str]) -> tuple[int, bytes]:
        """Status and body for one request."""
        self.requests.append((path, query))
        if path == "/v1/search":
            name = query["name"].casefold()
            if name == "silence":
                self.ended.wait()
            if name in FAULTS:
                return FAULTS[name]
            found = PLACES.get(name, ())[: int(query["count"])]
            # As the real service: without `results` where nothing was found.
            answer = {"generationtime_ms": 0.5, **({"results": found} if found else {})}
            return 200, json.dumps(answer).encode()
        if path == "/v1/forecast":
            latitude = float(query["latitude"])
            current = {"time": "2025-06-01T12:15", "interval": 900, **CURRENT[latitude]}
            return 200, json.dumps({"latitude": latitude, "current": current}).encode()
        return 404, b'{"error":true,"reason":"Not Found"}'

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                service.parents.append(self.headers.get("traceparent"))
                status, body = service.answer(
                    parts.path, dict(parse_qsl(parts.query, keep_blank_values=True))
                )
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", "http://127.0.0.1:9/elsewhere")
                self.send_header("Content-Type", "application/json; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
                """Say nothing."""

        return Handler
