"""Whether the server is there and whether to send requests to it: for load balancers.

Both are asked often and by anybody who reaches the port, under whatever name, so they cost little
and tell nothing that is secret.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from app.protocol.jsonrpc import dumps

_UNCACHED: Final = {"cache-control": "no-store"}


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether requests should be sent here.

    Attributes:
        reasons: Sentences that say why not; empty where they should.
        detail: Plain JSON data, beside these in the answer.
    """

    ready: bool
    reasons: tuple[str, ...] = ()
    detail: Mapping[str, Any] = field(default_factory=dict)

    @property
    def own(self) -> dict[str, Any]:
        """Without the detail, as plain JSON data."""
        return {"ready": self.ready, "reasons": list(self.reasons)}

    def encoded(self) -> bytes:
        """A JSON object on a line of its own, for whoever asks by hand."""
        return dumps(self.own | dict(self.detail) | self.own) + b"\n"


async def healthz(_: Request) -> Response:
    """That the event loop turns, and no more: nobody must restart it for the fault of another."""
    return PlainTextResponse("ok\n", headers=_UNCACHED)


def readyz(readiness: Callable[[], Readiness]) -> Callable[[Request], Awaitable[Response]]:
    """200 where requests should be sent here, else 503; the body says why."""

    async def answer(_: Request) -> Response:
        now = readiness()
        return Response(
            now.encoded(),
            200 if now.ready else 503,
            media_type="application/json",
            headers=_UNCACHED,
        )

    return answer
