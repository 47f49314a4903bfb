"""What a handler can answer a request with."""

from collections.abc import Sequence
from typing import NamedTuple

from app.execution.execution import Execution
from app.methods.record import RequestRecord
from app.principal import ANONYMOUS, Principal
from app.protocol.headers import HeaderMap
from app.protocol.trace_context import TraceContext
from app.registry.views import Offer


class Sender(NamedTuple):
    """Who sent a request, and how.

    Attributes:
        headers: None where the transport has none (stdio): ``Mcp-*`` rules are HTTP's alone.
        address: Of the client, as far as it can be trusted; None where it is not known.
        record: What the log and the metrics will say; None: nobody writes them.
        trace: What headers say where they are left out.
    """

    principal: Principal = ANONYMOUS
    headers: HeaderMap | None = None
    address: str | None = None
    record: RequestRecord | None = None
    trace: TraceContext | None = None


class Reply(NamedTuple):
    """An answer that is ready.

    Attributes:
        result: The encoded result object.
        outcome: For the log; see ``execution.Outcome``.
        headers: Response headers that repeat the mirrored parameters.
        offer: Of a call: its tool, as the caller finds it.
        error_id: What a generic error tells the caller, for the log.
        cached: As of ``Execution``.
    """

    result: bytes
    outcome: str = "ok"
    headers: Sequence[tuple[bytes, bytes]] = ()
    offer: Offer | None = None
    error_id: str | None = None
    cached: str | None = None


class Subscription(NamedTuple):
    """A request to be told of changes.

    Attributes:
        kinds: What the server agreed to tell of; empty if nothing was.
    """

    kinds: Sequence[str]


Answer = Reply | Execution | Subscription
