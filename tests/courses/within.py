"""A server's service in this process, for what only its inside shows: who waits, what ran."""

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from app.execution.execution import Execution
from app.methods.answers import Answer, Reply, Sender
from app.principal import ANONYMOUS, Principal
from app.protocol.errors import ProtocolError
from app.protocol.inbound import Call
from app.protocol.schema import RequestMeta
from app.service import Service
from app.settings import Settings

GATED: Final = Path(__file__).parent / "gated"
KEY: Final = "mcp-tool-server/idempotencyKey"
TIMEOUT: Final = "mcp-tool-server/timeoutMs"
ADA: Final = Principal(issuer="i", subject="ada")
BOB: Final = Principal(issuer="i", subject="bob")
_numbers: Final = itertools.count(1)


class Ended(NamedTuple):
    """How a call ended.

    Attributes:
        refusal: Instead of a result.
    """

    outcome: str
    result: dict[str, Any]
    headers: list[tuple[bytes, bytes]]
    error_id: str | None
    refusal: ProtocolError | None

    @property
    def text(self) -> str:
        """Of its first block."""
        text: str = self.result["content"][0]["text"]
        return text

    @property
    def word(self) -> str | None:
        """`hit`, `miss` or nothing."""
        word: str | None = self.result["_meta"].get("mcp-tool-server/cache")
        return word


class Within:
    """The service, and the module `doors` of its tools."""

    def __init__(self, service: Service) -> None:
        self.service = service

    @property
    def doors(self) -> Any:
        """The module whose tools and hooks wait at gates."""
        return self.service.registry.catalog.tools["pay"].source.module

    @property
    def seen(self) -> Any:
        """How often something was reached."""
        return self.doors.seen

    def open(self, *gates: str) -> None:
        """Let whoever waits there go on, now and later."""
        for gate in gates:
            self.doors.gates[gate].set()

    async def begin(
        self,
        tool: str,
        arguments: dict[str, Any] | None = None,
        who: Principal = ANONYMOUS,
        *,
        params: dict[str, Any] | None = None,
        capabilities: dict[str, Any] | None = None,
        **meta: Any,
    ) -> Answer:
        """Send a call. `key` and `timeout_ms` are names for the server's own keys of `_meta`."""
        names = {"key": KEY, "timeout_ms": TIMEOUT}
        raw = {names.get(name, name): value for name, value in meta.items()}
        declared = {"elicitation": {}} if capabilities is None else capabilities
        about = RequestMeta("2026-07-28", declared, None, None, None, None, raw)
        what = {"name": tool, "arguments": arguments or {}, **(params or {})}
        call = Call(next(_numbers), "tools/call", what, about)
        answer = self.service.router.dispatch(call, Sender(principal=who))
        return answer if isinstance(answer, Reply | Execution) else await answer  # type: ignore[misc]  # mypy does not leave the coroutine over

    async def call(self, *given: Any, **more: Any) -> Ended:
        """Send a call and wait for its end."""
        return await ended(await self.begin(*given, **more))


async def ended(answer: Answer) -> Ended:
    """Wait for the end of a call that was sent."""
    if isinstance(answer, Reply):
        result = json.loads(answer.result)
        return Ended(answer.outcome, result, list(answer.headers), None, None)
    assert isinstance(answer, Execution)
    while not answer.is_over:
        answer.take_notifications()
        await asyncio.wait_for(answer.wait(), 10)
    result = json.loads(answer.result) if answer.result else {}
    headers = list(answer.headers)
    return Ended(answer.outcome, result, headers, answer.error_id, answer.refusal)


async def until(probe: Callable[[], Any], what: str, timeout_s: float = 10.0) -> Any:
    """Let the loop run until `probe` answers something true."""
    deadline = time.monotonic() + timeout_s
    while not (answer := probe()):
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        await asyncio.sleep(0.002)
    return answer


@asynccontextmanager
async def within(folder: Path = GATED, **sections: Any) -> AsyncIterator[Within]:
    """The service of a folder with these settings; no rates unless they say so."""
    base: dict[str, Any] = {
        "tools": {"directory": folder, "reload": False},
        "limits": {"rates": [], "list_rates": []},
        "execution": {"processes": 1},
    }
    for name, value in sections.items():
        base[name] = {**base.get(name, {}), **value} if isinstance(value, dict) else value
    service = Service(Settings.model_validate(base), log_problems=False)
    await service.start()
    try:
        yield Within(service)
    finally:
        await service.stop()


def hook(use: str, *tools: str, **options: Any) -> dict[str, Any]:
    """An entry of `[[hooks]]`."""
    entry: dict[str, Any] = {"use": use, "tools": list(tools or ["*"])}
    return {**entry, "options": options} if options else entry
