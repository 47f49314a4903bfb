"""Callers at a steady rate, who count what became of each of their calls."""

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import httpx2

from tests.support.client import meta, modern_request

TIMEOUT_KEY: Final = "mcp-tool-server/timeoutMs"
IDEMPOTENCY_KEY: Final = "mcp-tool-server/idempotencyKey"
PATIENCE_S: Final = 20.0
AGAIN_AFTER_S: Final = 0.25
TRIES: Final = 60
"""A caller with an idempotency key comes back for fifteen seconds."""

GOODBYE_S: Final = 0.3
"""TLS connections that were closed say goodbye afterwards; the event loop has to live for that."""

DEADLINE_MS: Final = 2000
"""Which callers ask for. What became of a call whose server died is settled ten seconds later."""


@dataclass(slots=True)
class Fate:
    """What became of one call.

    Attributes:
        number: What it asked to be written down.
        keyed: Whether it had an idempotency key, and so might come again.
        tries: How each try ended: `ok`, `unknown` (the outcome is), `timeout`, a status, or what
            went wrong with the connection.
        began: When, on the clock of `time.monotonic`.
        took_s: From its first byte to its answer, all tries together.
    """

    number: int
    keyed: bool
    began: float
    tries: list[str] = field(default_factory=list)
    took_s: float = 0.0

    @property
    def ended(self) -> str:
        """How the last try ended."""
        return self.tries[-1] if self.tries else "never sent"


@dataclass(frozen=True, slots=True)
class Figures:
    """What became of all calls of a crowd.

    Attributes:
        sent: Calls.
        failed: Calls without a key that got no result, by what they got.
        failed_keyed: Calls with a key that had none after all their tries, but for the next.
        unknown: Calls with a key that were told that their outcome is not known.
        tried_again: Calls with a key that needed more than one try.
        lost: Calls with a result that nobody ran.
        duplicated: Calls that ran twice, of those with a key.
        duplicated_plain: Of those without, which were sent once.
        worst_s: The longest that a call took.
    """

    sent: int
    failed: Mapping[str, int]
    failed_keyed: Mapping[str, int]
    unknown: int
    tried_again: int
    lost: int
    duplicated: int
    duplicated_plain: int
    worst_s: float

    @property
    def failures(self) -> int:
        """Calls that ended without a result."""
        return sum(self.failed.values()) + sum(self.failed_keyed.values())


class Crowd:
    """Calls `record` at a steady rate, every other call with an idempotency key.

    Args:
        url: Of the endpoint.
        ledger: The file that the tool writes to.
        rate: Calls a second. They begin on time, however long others take.
    """

    def __init__(
        self,
        url: str,
        ledger: Path,
        *,
        rate: float,
        tool: str = "record",
        arguments: Mapping[str, Any] | None = None,
        first: int = 0,
        verify: Any = True,
    ) -> None:
        self._url = url
        self._ledger = ledger
        self._rate = rate
        self._tool = tool
        self._arguments = dict(arguments or {})
        self._first = first
        self._verify = verify
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._call()), daemon=True)
        self.fates: list[Fate] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(2 * PATIENCE_S + TRIES * AGAIN_AFTER_S)
        assert not self._thread.is_alive(), "callers still wait"

    def figures(self) -> Figures:
        """Count, when all have ended."""
        fates = self.fates
        runs = runs_in(self._ledger)
        plain = [fate for fate in fates if not fate.keyed]
        keyed = [fate for fate in fates if fate.keyed]
        return Figures(
            sent=len(fates),
            failed=Counter(fate.ended for fate in plain if fate.ended != "ok"),
            failed_keyed=Counter(
                fate.ended for fate in keyed if fate.ended not in {"ok", "unknown"}
            ),
            unknown=sum(fate.ended == "unknown" for fate in keyed),
            tried_again=sum(len(fate.tries) > 1 for fate in keyed),
            lost=sum(fate.ended == "ok" and not runs[fate.number] for fate in fates),
            duplicated=sum(runs[fate.number] > 1 for fate in keyed),
            duplicated_plain=sum(runs[fate.number] > 1 for fate in plain),
            worst_s=max((fate.took_s for fate in fates), default=0.0),
        )

    async def _call(self) -> None:
        limits = httpx2.Limits(max_connections=500, max_keepalive_connections=50)
        async with (
            httpx2.AsyncClient(
                timeout=PATIENCE_S, limits=limits, trust_env=False, verify=self._verify
            ) as client,
            asyncio.TaskGroup() as calls,
        ):
            began, number = time.monotonic(), 0
            while not self._stopping.is_set():
                fate = Fate(self._first + number, number % 2 == 0, time.monotonic())
                self.fates.append(fate)
                calls.create_task(self._see_through(client, fate))
                number += 1
                await asyncio.sleep(began + number / self._rate - time.monotonic())
        await asyncio.sleep(GOODBYE_S)

    async def _see_through(self, client: httpx2.AsyncClient, fate: Fate) -> None:
        for _ in range(TRIES if fate.keyed else 1):
            fate.tries.append(await self._try(client, fate))
            fate.took_s = time.monotonic() - fate.began
            if fate.ended in {"ok", "unknown", "wrong"}:
                return
            await asyncio.sleep(AGAIN_AFTER_S)

    async def _try(self, client: httpx2.AsyncClient, fate: Fate) -> str:
        key = {IDEMPOTENCY_KEY: f"call-{fate.number}"} if fate.keyed else {}
        params = {
            "name": self._tool,
            "arguments": {"number": fate.number, **self._arguments},
            "_meta": {**meta(), **key, TIMEOUT_KEY: DEADLINE_MS},
        }
        request = modern_request("tools/call", params, id=fate.number)
        headers = {name: str(value) for name, value in request.headers if name != "Host"}
        try:
            response = await client.post(self._url, content=request.body, headers=headers)
        except httpx2.HTTPError as error:
            return type(error).__name__
        if response.status_code != httpx2.codes.OK:
            return str(response.status_code)
        message = _last_message(response)
        result = message.get("result", {})
        if result.get("structuredContent", {}).get("number") == fate.number:
            return "ok"
        text = json.dumps(message)
        return next((end for sign, end in ENDS.items() if sign in text), "wrong")


ENDS: Final = {"outcome is not known": "unknown", "within its deadline": "timeout"}
"""What a tool error says, and what it is called here."""


def _last_message(response: httpx2.Response) -> dict[str, Any]:
    text = response.text
    if "text/event-stream" in response.headers["content-type"]:
        text = [line for line in text.splitlines() if line.startswith("data:")][-1][5:]
    message: dict[str, Any] = json.loads(text)
    return message


def runs_in(ledger: Path) -> Counter[int]:
    """How often each number was written down."""
    text = ledger.read_text("ascii") if ledger.exists() else ""
    return Counter(int(line.split()[0]) for line in text.splitlines())
