"""`python -m benchmarks.around`: what each thing that can stand around a call adds to it.

In one process and without sockets: the same call with and without it, in turns, the least of the
rounds. A whole request costs some 50 µs more, for its socket. What a shared state adds is measured
with a Valkey or Redis on this machine, and counts the time of the server alone.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import uvloop

from app.backing import State
from app.execution.execution import Execution
from app.methods.answers import Answer, Sender
from app.observability.logs import configure_logging
from app.principal import Principal
from app.protocol.inbound import Call, RequestMeta
from app.service import Service
from app.settings import Settings, StateSettings
from app.sharing import state_of
from tests.support.stores import RedisServer

ROUNDS = 8
CALLS = 1000
TEXT = "Ada wrote to ops about order 4711, which was due on 2026-11-30 at 14:05. " * 3

TOOLS = '''
from pydantic import BaseModel

from app import after_call, before_call, tool

READS = {"read_only": True}


class Result(BaseModel):
    text: str
    count: int


def make(name, **options):
    async def function(text: str, count: int) -> Result:
        """Count."""
        return Result(text=text, count=count)

    function.__name__ = name
    return tool(**options)(function)


plain = make("plain")
limited = make("limited")
hooked_before = make("hooked_before")
hooked_after = make("hooked_after")
redacted = make("redacted")
scanned = make("scanned")
kept = make("kept", annotations=READS, cache_ttl_s=3600)
missed = make("missed", annotations=READS, cache_ttl_s=3600)
retried = make("retried", annotations=READS, retries=2)


@tool(isolation="process")
def apart(text: str, count: int) -> Result:
    """Count."""
    return Result(text=text, count=count)


@before_call
def nothing_before(call):
    """Do nothing."""


@after_call
def nothing_after(call, result):
    """Do nothing."""
'''

HOOKS = (
    {"tools": ["hooked_before"], "use": "nothing_before"},
    {"tools": ["hooked_after"], "use": "nothing_after"},
    {"tools": ["redacted"], "use": "redact", "options": {"locales": ["us"]}},
    {"tools": ["scanned"], "use": "injection"},
)

VARIANTS: dict[str, tuple[str, str]] = {
    "nothing": ("plain", "same"),
    "an idempotency key": ("plain", "key"),
    "a kept result, found": ("kept", "same"),
    "a kept result, not found": ("missed", "new"),
    "`retries`, not needed": ("retried", "same"),
    "a hook before": ("hooked_before", "same"),
    "a hook after": ("hooked_after", "same"),
    "`redact`, 200 characters": ("redacted", "same"),
    "`injection`, 200 characters": ("scanned", "same"),
    "a process": ("apart", "same"),
}


SHARED: dict[str, tuple[str, str]] = {
    "a limit": ("limited", "same"),
    "a limit and an idempotency key": ("limited", "key"),
}
"""Measured with both kinds of state."""


async def measure(
    folder: Path, variants: dict[str, tuple[str, str]], state: State | None = None
) -> dict[str, float]:
    """CPU time of a call in µs, least of the rounds, by variant."""
    (folder / "around.py").write_text(TOOLS, "utf-8")
    settings = Settings.model_validate(
        {
            "tools": {"directory": folder, "reload": False},
            "hooks": HOOKS,
            "limits": {
                "rates": [
                    {"tools": ["limited"], "bucket": "user", "capacity": 1_000_000, "period_s": 1}
                ],
                "list_rates": [],
            },
            "execution": {"processes": 1},
        }
    )
    service = Service(settings, log_problems=False, state=state)
    await service.start()
    service.registry.settle()
    numbers = itertools.count()

    async def call(tool: str, how: str) -> None:
        number = next(numbers)
        raw = {"mcp-tool-server/idempotencyKey": str(number)} if how == "key" else {}
        meta = RequestMeta("2026-07-28", {}, None, None, None, None, raw)
        arguments = {"text": TEXT, "count": number if how == "new" else 1}
        request = Call(number, "tools/call", {"name": tool, "arguments": arguments}, meta)
        answer = service.router.dispatch(request, Sender())
        if isinstance(answer, Awaitable):
            answer = await answer
        assert isinstance(answer, Answer)
        if isinstance(answer, Execution):
            await answer.wait()
            assert answer.outcome == "ok", answer.result

    least = dict.fromkeys(variants, float("inf"))
    try:
        for _ in range(ROUNDS):
            for name, (tool, how) in variants.items():
                least[name] = min(least[name], await _round(call, tool, how))
    finally:
        await service.stop()
    return least


AT_ONCE = (1, 16, 64)


async def measure_audit(folder: Path) -> dict[int, tuple[float, float]]:
    """CPU time of a call in µs without and with a record, least of the rounds, by how many calls
    are under way at once: those that end together share a write.
    """
    (folder / "around.py").write_text(TOOLS, "utf-8")
    base = {
        "tools": {"directory": folder, "reload": False},
        "limits": {"rates": [], "list_rates": []},
        "secrets": {"keys": ["k" * 32]},
    }
    record = {"audit": {"directory": folder / "audit"}}
    services = [
        Service(Settings.model_validate({**base, **more}), log_problems=False)
        for more in ({}, record)
    ]
    for service in services:
        await service.start()
        service.registry.settle()
    who = Principal(issuer="https://login.example.com", subject="ada", credential_id="7")
    sender = Sender(who, None, "192.0.2.1")

    async def calls(service: Service, count: int) -> None:
        for number in range(count):
            meta = RequestMeta("2026-07-28", {}, None, None, None, None, {})
            params = {"name": "plain", "arguments": {"text": TEXT, "count": 1}}
            answer = service.router.dispatch(Call(number, "tools/call", params, meta), sender)
            assert isinstance(answer, Execution)
            await answer.wait()
            assert answer.outcome == "ok", answer.result

    found = {}
    try:
        for at_once in AT_ONCE:
            least = [float("inf"), float("inf")]
            for _ in range(ROUNDS):
                for place, service in enumerate(services):
                    gc.collect()
                    before = time.process_time()
                    each = 2 * CALLS // at_once
                    await asyncio.gather(*(calls(service, each) for _ in range(at_once)))
                    took = (time.process_time() - before) / (each * at_once) * 1e6
                    least[place] = min(least[place], took)
            found[at_once] = (least[0], least[1])
    finally:
        for service in services:
            await service.stop()
    return found


async def _round(call: Callable[[str, str], Awaitable[None]], tool: str, how: str) -> float:
    gc.collect()
    before = time.process_time()
    for _ in range(CALLS):
        await call(tool, how)
    return (time.process_time() - before) / CALLS * 1e6


def main() -> None:
    """Measure and print a table."""
    configure_logging("error", "json")
    with tempfile.TemporaryDirectory(prefix="around-") as name:
        found = uvloop.run(measure(Path(name), VARIANTS))
        in_memory = uvloop.run(measure(Path(name), SHARED))
        with RedisServer() as redis:
            state = state_of(StateSettings.model_validate({"url": redis.url}))
            in_redis = uvloop.run(measure(Path(name), SHARED, state))
    plain = found["nothing"]
    print("| | µs | more |")
    print("|---|---:|---:|")
    for name, us in found.items():
        print(f"| {name} | {us:.1f} | {us - plain:.1f} |")
    with tempfile.TemporaryDirectory(prefix="around-") as name:
        audited = uvloop.run(measure_audit(Path(name)))
    for at_once, (without, with_it) in audited.items():
        what = f"an audit record, {at_once} calls at once"
        print(f"| {what} | {with_it:.1f} | {with_it - without:.1f} |")
    print("\n| | in memory, µs | in Redis, µs | times |")
    print("|---|---:|---:|---:|")
    for name, us in in_memory.items():
        print(f"| {name} | {us:.1f} | {in_redis[name]:.1f} | {in_redis[name] / us:.2f} |")


if __name__ == "__main__":
    main()
