"""The administrative listener as an ASGI application: JSON in, JSON out."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import orjson
import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from app.admin.access import Access
from app.admin.bodies import CredentialBody, Nothing, SwitchBody, parse_body
from app.admin.operations import Answer, Operations
from app.fleet.control import Full, Unusable
from app.fleet.keeping import Contended
from app.http.gate import Gate, is_json
from app.http.responses import Receive, Scope, Send
from app.observability.exposition import Exposition
from app.protocol.errors import (
    MethodNotAllowed,
    NotFound,
    ProtocolError,
    Unavailable,
    UnsupportedMediaType,
)
from app.protocol.headers import HeaderMap
from app.state.interface import StoreUnavailable

log = structlog.get_logger()

Json = dict[str, Any]
RETRY_S: Final = 2

Handle = Callable[[Request, str, bytes], Awaitable[Answer | Json]]
"""Answers a request of an administrator, by the id of the key, with its body."""


class Listener:
    """The routes, and what stands before them.

    Args:
        gate: Looks at Host, Origin and size.
        access: Says who administers.
        metrics: Tells what Prometheus asks for.
    """

    def __init__(
        self, operations: Operations, gate: Gate, access: Access, metrics: Exposition
    ) -> None:
        self._gate = gate
        self._access = access
        self._metrics = metrics
        do = operations

        async def status(_: Request, __: str, ___: bytes) -> Json:
            return do.status()

        async def tools(_: Request, __: str, ___: bytes) -> Json:
            return do.tools()

        async def switch(request: Request, by: str, body: bytes) -> Answer | Json:
            tool = request.path_params["tool"]
            match request.method:
                case "DELETE":
                    parse_body(body, Nothing)
                    return await do.remove_switch(by, tool)
                case "PUT" | "PATCH":
                    said = parse_body(body, SwitchBody)
                    keep_rest = request.method == "PATCH"
                    return await do.set_switch(by, tool, said, keep_rest=keep_rest)
                case _:
                    return do.switch(tool)

        async def reload(_: Request, by: str, body: bytes) -> Answer:
            parse_body(body, Nothing)
            return await do.reload(by)

        async def drain(request: Request, by: str, body: bytes) -> Answer:
            parse_body(body, Nothing)
            replica = request.path_params["replica"]
            if request.method == "DELETE":
                return await do.undrain(by, replica)
            return await do.drain(by, replica)

        async def revoked(_: Request, __: str, ___: bytes) -> Json:
            return do.revoked()

        async def revoke(_: Request, by: str, body: bytes) -> Answer:
            return await do.revoke(by, parse_body(body, CredentialBody))

        async def restore(_: Request, by: str, body: bytes) -> Answer:
            return await do.restore(by, parse_body(body, CredentialBody))

        routes: tuple[tuple[str, tuple[str, ...], Handle], ...] = (
            ("/admin/v1/status", ("GET",), status),
            ("/admin/v1/tools", ("GET",), tools),
            ("/admin/v1/tools/{tool}/switch", ("GET", "PUT", "PATCH", "DELETE"), switch),
            ("/admin/v1/reload", ("POST",), reload),
            ("/admin/v1/replicas/{replica}/drain", ("POST", "DELETE"), drain),
            ("/admin/v1/credentials", ("GET",), revoked),
            ("/admin/v1/credentials/revoke", ("POST",), revoke),
            ("/admin/v1/credentials/restore", ("POST",), restore),
        )
        self._app = Starlette(
            routes=[
                Route("/healthz", _healthz, methods=["GET"]),
                Route("/metrics", self._scrape, methods=["GET"]),
                *(
                    Route(path, self._guarded(handle), methods=list(methods))
                    for path, methods, handle in routes
                ),
            ],
            exception_handlers={HTTPException: self._nothing_there},
        )
        self._app.router.redirect_slashes = False
        self.on_drain: Callable[[bool], None] = lambda _: None

    # What its server asks and tells (app.http.serving.Served). It ends with the process.

    def serve(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        return self._app(scope, receive, send)

    def begin_end(self) -> float:
        return 0.0

    def stop(self) -> None:
        pass

    def _guarded(self, handle: Handle) -> Callable[[Request], Awaitable[Response]]:
        async def guarded(request: Request) -> Response:
            try:
                by = self._administrator(request)
                answer = await handle(request, by, await self._read(request))
            except ClientDisconnect:
                return Response(status_code=400)  # nobody reads it
            except Exception as error:  # noqa: BLE001  # it gets an answer, whatever it is
                return self._failed(error, request)
            if isinstance(answer, Answer):
                return _json(200 if answer.is_complete else 202, answer.value)
            return _json(200, answer)

        return guarded

    async def _scrape(self, request: Request) -> Response:
        headers = HeaderMap(request.scope["headers"])
        try:
            self._access.check_scraper(headers, request.scope["query_string"])
            accept = headers.get(b"accept", b"").decode("latin-1")
            content_type, text = await self._metrics(accept)
        except Exception as error:  # noqa: BLE001  # it gets an answer, whatever it is
            return self._failed(error, request)
        own = {"content-type": content_type, "cache-control": "no-store"}
        return Response(text, headers={**own, "x-content-type-options": "nosniff"})

    def _administrator(self, request: Request) -> str:
        scope = request.scope
        headers = HeaderMap(scope["headers"])
        return self._access.administrator(headers, scope["query_string"])

    async def _read(self, request: Request) -> bytes:
        """The whole body.

        Raises:
            UnsupportedMediaType: It is not said to be JSON.
            PayloadTooLarge: It is over the bound.
        """
        headers = HeaderMap(request.scope["headers"])
        self._gate.check_size(headers)
        data = bytearray()
        async for chunk in request.stream():
            data += chunk
            if len(data) > self._gate.max_body_bytes:
                raise self._gate.too_large()
        if data and not is_json(headers.get(b"content-type", b"")):
            raise UnsupportedMediaType("The Content-Type must be application/json.")
        if data and headers.get(b"content-encoding") is not None:
            raise UnsupportedMediaType("Content-Encoding is not supported; send the body as it is.")
        return bytes(data)

    async def _nothing_there(self, request: Request, error: Exception) -> Response:
        """A path or method that is not served: only administrators learn that."""
        assert isinstance(error, HTTPException)
        try:
            self._administrator(request)
        except ProtocolError as refused:
            return self._refused(refused, request)
        if error.status_code == NotFound.http_status:
            return self._refused(NotFound("There is nothing here; see /admin/v1/status."), request)
        allow = (error.headers or {}).get("Allow", "GET")
        return self._refused(MethodNotAllowed(f"This path takes {allow}.", allow=allow), request)

    def _failed(self, error: Exception, request: Request) -> Response:
        match error:
            case ProtocolError():
                return self._refused(error, request)
            case StoreUnavailable() | Contended():
                return _unavailable(error)
            case Unusable():
                return _error(
                    503, f"What lies in the store is not what this server wrote: {error}."
                )
            case Full():
                return _error(409, str(error))
        log.error("administration_failed", path=request.scope["path"][:128], exc_info=error)
        return _error(500, "Internal error.")

    def _refused(self, error: ProtocolError, request: Request) -> Response:
        if error.http_status in (401, 403, 421):
            client = request.client.host if request.client is not None else None
            log.warning("administration_refused", reason=error.message, address=client)
        response = _error(error.http_status, error.message)
        response.raw_headers += error.headers
        return response


async def _healthz(_: Request) -> Response:
    return PlainTextResponse("ok\n")


def _unavailable(error: StoreUnavailable | Contended) -> Response:
    if isinstance(error, Contended):
        said = "Others are changing something as well; nothing was changed."
    else:
        said = f"The store cannot be used, so nothing was changed, as far as is known: {error}."
    refusal = Unavailable(said, retry_after_s=RETRY_S)
    response = _error(refusal.http_status, refusal.message)
    response.raw_headers += refusal.headers
    return response


def _error(status: int, message: str) -> Response:
    return _json(status, {"error": message})


def _json(status: int, value: Json) -> Response:
    headers = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
    data = orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)
    return Response(data, status, headers, media_type="application/json")
