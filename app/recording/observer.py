"""Which calls are recorded, and what of each is handed to the thread that writes."""

import asyncio
from collections.abc import Callable
from typing import Final

from app.execution.asking import Asking
from app.methods.observing import Ended
from app.methods.tools import TIMEOUT_KEY
from app.protocol.errors import HeaderMismatch, InvalidParams
from app.protocol.jsonrpc import dumps
from app.recording.gathering import Finished
from app.recording.recorder import Recorder
from app.recording.recording import Refusal
from app.registry.catalog import Catalog

KEPT: Final = {
    "errors": frozenset({"tool_error", "timeout", "internal_error", "denied", "protocol_error"}),
    "all": frozenset(
        {
            *("tool_error", "timeout", "internal_error", "denied", "protocol_error"),
            *("ok", "input_required", "cancelled"),
        }
    ),
    "none": frozenset[str](),
}
"""Outcomes that are recorded. What was refused by a limit or for want of room is not among them:
that is a matter of the moment, and a flood of it would push everything else out."""


class RecordingObserver:
    """Records calls, as tools and overrides say. Implements ``methods.observing.Observer``.

    Args:
        catalog: Gives the current snapshot.
    """

    needs_arguments = True

    def __init__(self, recorder: Recorder, catalog: Callable[[], Catalog]) -> None:
        self.recorder = recorder
        self._catalog = catalog

    def start(self) -> None:
        """Begin to write."""
        self.recorder.start()

    async def stop(self, timeout_s: float) -> None:
        """Write what waits, as far as there is time."""
        await asyncio.to_thread(self.recorder.stop, timeout_s)

    def ended(self, ended: Ended) -> None:
        """A call has ended. Its answer waits for nothing."""
        name = ended.call.params.get("name")
        if not isinstance(name, str):
            return
        catalog = self._catalog()
        # One that the caller cannot see is refused as unknown, and has its word all the same.
        tool = ended.tool or catalog.tools.get(name)
        if tool is None or ended.outcome not in KEPT[tool.record]:
            return
        if ended.cached in ("hit", "repeated") or _is_of_transport(ended):
            return
        meta = ended.call.meta
        arguments = b"{}" if ended.arguments == b"null" else ended.arguments
        if not meta.protocol_version or arguments[:1] != b"{":
            return  # refused before it was known what is called
        timeout_ms = meta.raw.get(TIMEOUT_KEY)
        answers, needs_page = _answers(ended.asking, ended.call.params.get("inputResponses"))
        self.recorder.keep(
            Finished(
                request_id=ended.call.id,
                tool=tool.name,
                tool_version=tool.version,
                fingerprint=catalog.fingerprint,
                principal=ended.principal,
                address=ended.address,
                began=ended.began,
                duration_s=ended.duration_s,
                outcome=ended.outcome,
                meta=meta,
                arguments=arguments,
                answers=answers,
                capabilities=dumps(dict(meta.client_capabilities)),
                needs_page=needs_page,
                result=ended.result or None,
                refusal=None if ended.error is None else Refusal.of(ended.error),
                error_id=ended.error_id,
                timeout_ms=timeout_ms if type(timeout_ms) is int else None,
            )
        )


def _is_of_transport(ended: Ended) -> bool:
    """Whether the call was refused for what no recording has: its headers, or a sealed state."""
    return isinstance(ended.error, HeaderMismatch) or (
        isinstance(ended.error, InvalidParams)
        and ended.tool is not None
        and "requestState" in ended.call.params
    )


def _answers(asking: Asking | None, brought: object) -> tuple[bytes, bool]:
    """Answers by key, encoded; and whether a user was sent to a page."""
    if asking is not None:
        answers, needs_page = asking.answers, bool(asking.page_handles)
        return dumps({key: dict(each) for key, each in answers.items()}), needs_page
    if isinstance(brought, dict):
        return dumps({key: each for key, each in brought.items() if isinstance(each, dict)}), False
    return b"{}", False
