"""Calls that are made once: ``_meta["mcp-tool-server/idempotencyKey"]``.

The first call with a key claims it in the store and leaves its outcome there. A repeated one finds
the outcome, or waits for it. Who claimed it may have died: when the time is over that the call
could have taken, its outcome is unknown, and stays so. It is never run again.
"""

import asyncio
import hashlib
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import structlog

from app.execution.execution import Outcome
from app.principal import Principal
from app.protocol.errors import InvalidParams, Unavailable
from app.protocol.jsonrpc import canonical, dumps, loads
from app.state.interface import Store, StoreFull, StoreUnavailable
from app.toolkit.handles import owner_of

IDEMPOTENCY_KEY: Final = "mcp-tool-server/idempotencyKey"
"""``_meta`` of a request."""

MAX_KEY_CHARACTERS: Final = 255
GRACE_S: Final = 10.0
"""After the deadline of a call, for clocks that differ and for writing its outcome down."""

FIRST_LOOK_S: Final = 0.05
LAST_LOOK_S: Final = 0.5
"""How often a repeated call looks for the outcome of one that runs on another server."""

UNKNOWN: Final = (
    "A call with this idempotency key was begun and its outcome is not known: the server or the "
    "connection went away while it ran. It is not run again. Find out what it has done, and use "
    "a new key for another call."
)

log = structlog.get_logger()


class Known(NamedTuple):
    """What became of a call that was made before. ``result`` None: nobody knows."""

    result: bytes | None
    outcome: str


class _Entry(NamedTuple):
    """What the store holds under a key.

    Attributes:
        state: ``running``, ``open`` (nothing came of it; it may be claimed again), ``done`` or
            ``unknown``.
        call: Digest of the tool and the arguments.
        until: POSIX time at which a running call must have ended.
        token: Tells claims apart.
        owner: As whose the store counts it.
    """

    state: str
    call: str
    until: float = 0.0
    token: str = ""
    owner: str = ""
    outcome: str = ""

    def encoded(self, result: bytes = b"") -> bytes:
        return dumps(list(self)) + b"\n" + result


class Claim:
    """The right to run a call, and the duty to say what came of it."""

    def __init__(self, outcomes: "Outcomes", name: str, entry: _Entry) -> None:
        self._outcomes = outcomes
        self._name = name
        self._entry = entry

    async def settle(self, result: bytes, outcome: str) -> None:
        """This is what came of it, for ever."""
        done = self._entry._replace(state="done", outcome=outcome)
        await self._replace(done, result)

    async def lose(self) -> None:
        """It was stopped, and nobody knows what it has done."""
        await self._replace(self._entry._replace(state="unknown"))

    async def release(self) -> None:
        """Nothing came of it: it may be made again."""
        await self._replace(self._entry._replace(state="open"))

    async def _replace(self, after: _Entry, result: bytes = b"") -> None:
        try:
            await self._outcomes.replace(self._name, self._entry.encoded(), after, result)
        except StoreUnavailable as error:
            # The caller gets its answer; who repeats the call is told that nobody knows.
            log.error("outcome_not_kept", problem=str(error))  # noqa: TRY400  # no bug of ours
        finally:
            self._outcomes.is_settled(self._name)


class Outcomes:
    """The outcomes of calls with a key.

    Args:
        ttl_s: How long an outcome is kept.
        clock: Gives POSIX time.
    """

    def __init__(
        self, store: Store, *, ttl_s: float, clock: Callable[[], float] = time.time
    ) -> None:
        self._store = store
        self._ttl_s = ttl_s
        self._clock = clock
        self._settled: dict[str, asyncio.Event] = {}

    async def claim(
        self,
        key: str,
        principal: Principal,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        remaining_s: float,
    ) -> Claim | Known:
        """The right to run a call; or what came of it before, once that is known.

        Args:
            arguments: As the client sent them.
            remaining_s: Time until the deadline of the call.

        Raises:
            InvalidParams: The key was used for another call.
            Unavailable: The store does not answer: without it the call must not run.
        """
        name = _name(key, principal)
        call = hashlib.sha256(canonical([tool, arguments])).hexdigest()
        until = self._clock() + remaining_s + GRACE_S
        owner = owner_of(principal.identity)
        mine = _Entry("running", call, until, secrets.token_hex(8), owner)
        try:
            return await self._claim(name, mine, tool)
        except StoreFull as error:
            raise Unavailable(
                "Too many outcomes are kept for you: send this call without an idempotency key, or "
                "later.",
                retry_after_s=60,
            ) from error
        except StoreUnavailable as error:
            raise Unavailable(
                "Calls with an idempotency key cannot be taken at the moment.", retry_after_s=2
            ) from error

    async def _claim(self, name: str, mine: _Entry, tool: str) -> Claim | Known:
        before: bytes | None = None
        pause_s = FIRST_LOOK_S
        while not await self.replace(name, before, mine):
            before = await self._store.get(name)
            if before is None:
                continue
            header, _, result = before.partition(b"\n")
            entry = _Entry(*loads(header))
            if entry.call != mine.call:
                raise InvalidParams(
                    f'_meta["{IDEMPOTENCY_KEY}"] was used for another call: another tool or other '
                    "arguments. Use a new key for each call."
                )
            if entry.state == "done":
                return Known(result, entry.outcome)
            if entry.state == "running" and self._clock() <= entry.until:
                await self._wait(name, pause_s)
                pause_s = min(2 * pause_s, LAST_LOOK_S)
                before = None
            elif entry.state != "open":
                if entry.state == "running":
                    log.warning("outcome_lost", tool=tool)
                    await self.replace(name, before, entry._replace(state="unknown"))
                return Known(None, Outcome.TOOL_ERROR)
        return Claim(self, name, mine)

    async def replace(
        self, name: str, before: bytes | None, after: _Entry, result: bytes = b""
    ) -> bool:
        """As ``Store.replace``."""
        value = after.encoded(result)
        return await self._store.replace(name, before, value, ttl_s=self._ttl_s, owner=after.owner)

    def is_settled(self, name: str) -> None:
        """A call of this process has ended: those who wait for it look again."""
        event = self._settled.pop(name, None)
        if event is not None:
            event.set()

    async def _wait(self, name: str, pause_s: float) -> None:
        event = self._settled.setdefault(name, asyncio.Event())
        try:
            async with asyncio.timeout(pause_s):
                await event.wait()
        except TimeoutError:
            pass
        finally:
            if not event.is_set() and self._settled.get(name) is event:
                del self._settled[name]  # another server runs it, or it waits on


def idempotency_key(meta: Mapping[str, Any]) -> str | None:
    """The key of a request, if it has one.

    Raises:
        InvalidParams: It is no text of 1 to 255 characters.
    """
    if IDEMPOTENCY_KEY not in meta:
        return None
    key = meta[IDEMPOTENCY_KEY]
    if not isinstance(key, str) or not 0 < len(key) <= MAX_KEY_CHARACTERS:
        raise InvalidParams(
            f'_meta["{IDEMPOTENCY_KEY}"] must be a string of 1 to {MAX_KEY_CHARACTERS} characters, '
            "such as a UUID."
        )
    return key


def _name(key: str, principal: Principal) -> str:
    # Hashed with its owner: nobody finds the outcome of somebody else's call.
    named = canonical([*principal.identity, key])
    return "call:" + hashlib.sha256(named).hexdigest()
