"""The routes of the server: the MCP endpoint, health, and JSON for everything else."""

from collections.abc import Awaitable, Callable
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Lifespan

from app.http.health import Readiness, healthz, readyz
from app.http.landing import Landing
from app.http.responses import Receive, Scope, Send
from app.protocol.errors import MethodNotAllowed, NotFound, ProtocolError, Refusal, Unavailable
from app.protocol.jsonrpc import error_response

MCP_PATHS: Final = ("/mcp", "/mcp/")
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]


class Application:
    """The ASGI application.

    The MCP endpoint is reached without Starlette's routing, which costs several microseconds
    of every call; the two spellings of its path answer alike, without a redirect.

    Args:
        endpoint: Gives the endpoint once the lifespan has run, else None.
        readiness: Whether requests should be sent here.
        metadata: Gives what a path below ``/.well-known`` says, if anything.
        landing: Gives the pages for users, where somebody can log in to them.
    """

    def __init__(
        self,
        *,
        endpoint: Callable[[], AsgiApp | None],
        readiness: Callable[[], Readiness],
        metadata: Callable[[str], bytes | None],
        landing: Callable[[], Landing | None],
        lifespan: Lifespan[Starlette],
    ) -> None:
        self._endpoint = endpoint
        self._rest = Starlette(
            routes=[
                Route("/healthz", healthz, methods=["GET"]),
                Route("/readyz", readyz(readiness), methods=["GET"]),
                Route(
                    "/.well-known/{name:path}", _well_known(metadata), methods=["GET", "OPTIONS"]
                ),
                Route("/elicit/callback", _page(landing), methods=["GET"]),
                Route("/elicit/{handle}", _page(landing), methods=["GET", "POST"]),
            ],
            exception_handlers={HTTPException: _http_error},
            lifespan=lifespan,
        )
        self._rest.router.redirect_slashes = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As any ASGI server calls it: some look for a coroutine function."""
        await self.serve(scope, receive, send)

    def serve(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """The same, in one coroutine less."""
        path = _path_below_root(scope) if scope.get("root_path") else scope.get("path")
        if path in MCP_PATHS and scope["type"] == "http":
            return (self._endpoint() or _not_started)(scope, receive, send)
        return self._rest(scope, receive, send)


def _path_below_root(scope: Scope) -> str:
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    return path.removeprefix(root) if root else path


async def _not_started(scope: Scope, receive: Receive, send: Send) -> None:
    """Where the application was mounted into another and its lifespan was not passed on."""
    error = Unavailable(
        "The server has not started: whatever hosts this application must run its ASGI lifespan.",
        retry_after_s=1,
    )
    await _refused(error)(scope, receive, send)


def _well_known(
    metadata: Callable[[str], bytes | None],
) -> Callable[[Request], Awaitable[Response]]:
    """Metadata that anybody may read from anywhere: it is how a client finds out whom to ask."""
    cors = {"access-control-allow-origin": "*"}

    async def well_known(request: Request) -> Response:
        body = metadata(_path_below_root(request.scope))
        if body is None:
            return _refused(NotFound("There is no such metadata here."))
        if request.method == "OPTIONS":
            methods = {"access-control-allow-methods": "GET", "access-control-allow-headers": "*"}
            return Response(status_code=204, headers={**cors, **methods})
        return Response(body, media_type="application/json", headers=cors)

    return well_known


def _page(landing: Callable[[], Landing | None]) -> Callable[[Request], Awaitable[Response]]:
    """Pages of this server for people, not for clients."""

    async def page(request: Request) -> Response:
        found = landing()
        if found is None:
            raise HTTPException(NotFound.http_status)
        try:
            return await found.answer(request)
        except ProtocolError as error:
            return _refused(error)

    return page


async def _http_error(_: Request, error: Exception) -> Response:
    """Starlette's own refusals: of a path that nobody serves, or of a method."""
    assert isinstance(error, HTTPException)
    if error.status_code == NotFound.http_status:
        refusal: Refusal = NotFound("There is nothing here. The MCP endpoint is at /mcp.")
    else:
        allow = (error.headers or {}).get("Allow", "GET")
        refusal = MethodNotAllowed(f"This path takes {allow}.", allow=allow)
    return _refused(refusal)


def _refused(error: ProtocolError) -> Response:
    body = error_response(None, error)
    response = Response(body, error.http_status, media_type="application/json")
    response.raw_headers += error.headers
    return response
