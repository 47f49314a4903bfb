"""`python -m benchmarks.said`: what the log line and the metrics of a call cost, by themselves.

In one process and without sockets, least of the rounds.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from app.execution.results import USUAL_TYPES
from app.methods.record import RequestRecord
from app.observability import metrics
from app.observability.exposition import rendered
from app.observability.logs import EventLog, configure_logging
from app.observability.sharing import take
from app.principal import Principal
from app.protocol.inbound import Call, RequestMeta
from app.protocol.schema import Implementation

ROUNDS = 25
CALLS = 5000
RESULT = (
    b'{"resultType":"complete","content":[{"type":"text","text":"{\\"text\\":\\"hello there\\",'
    b'\\"count\\":1}"}],"structuredContent":{"text":"hello there","count":1},"isError":false,'
    b'"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"server","version":"1"}}}'
)
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
WHO = Principal(issuer="https://login.example.com", subject="ada@example.com", tenant="acme")
META = RequestMeta("2026-07-28", {}, Implementation("bench", "1.0"), None, None, TRACE, {})
TOOL: Any = SimpleNamespace(name="finance.convert", short_version="0123456789ab")
EXECUTION: Any = SimpleNamespace(
    attempt=1,
    cached=None,
    refusal=None,
    outcome="ok",
    error_id=None,
    result=RESULT,
    content_types=USUAL_TYPES,
)


def of_call(number: int, log: EventLog) -> None:
    """What a call leaves behind."""
    record = RequestRecord()
    record.address, record.principal = "127.0.0.1", WHO
    record.call(Call(number, "tools/call", {"name": TOOL.name, "arguments": {}}, META))
    record.found = TOOL
    record.ended(EXECUTION)
    record.write(log, 200)


def least(do: Callable[[], object], rounds: int, times: int = 1) -> float:
    """CPU time of one in µs."""
    best = float("inf")
    for _ in range(rounds):
        before = time.process_time()
        do()
        best = min(best, (time.process_time() - before) / times * 1e6)
    return best


def fill(tools: int) -> None:
    """Series as after calls of so many tools."""
    for family in metrics.FAMILIES.values():
        family.values = {}
    for number in range(tools):
        for outcome in ("ok", "tool_error", "timeout"):
            metrics.TOOL_CALLS.inc(f"tool_number_{number}", outcome)
        metrics.RESPONSE_TIME.observe(0.01, f"tool_number_{number}")


async def main() -> None:
    """Measure and print."""
    with open(os.devnull, "w", encoding="utf-8") as nowhere:  # noqa: ASYNC230, PTH123  # a stream for the log
        configure_logging("info", "json", nowhere)
        written, silent = EventLog("request"), EventLog("request")
        silent.is_enabled = False

        def calls(log: EventLog) -> Callable[[], None]:
            def do() -> None:
                for number in range(CALLS):
                    of_call(number, log)
                log.flush()

            return do

        print(f"a line and its counts   {least(calls(written), ROUNDS, CALLS):6.1f} µs")
        print(f"without the line        {least(calls(silent), ROUNDS, CALLS):6.1f} µs")
    for tools in (50, 1000):
        fill(tools)
        snapshot = take()
        told = least(lambda snapshot=snapshot: rendered(snapshot), 5) / 1000
        left = least(snapshot.encoded, 5) / 1000
        size = len(rendered(snapshot)[1]) // 1024
        print(
            f"{tools:5} tools: told in {told:.0f} ms ({size} KiB), left for others in {left:.2f} ms"
        )


if __name__ == "__main__":
    asyncio.run(main())
