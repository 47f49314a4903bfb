"""Calls that are made once: ``_meta["mcp-tool-server/idempotencyKey"]``.

The first call with a key claims it in the store and leaves its outcome there. A repeated one finds
the outcome, or waits for it. Who claimed it may have died: when the time is over that the call
could have taken, its outcome is unknown, and stays so. It is never run again. That time is measured
by the store alone: the clocks of servers may differ by more than a call takes.
"""

import asyncio
import contextlib
import hashlib
import secrets
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Final, NamedTuple

import structlog

from app.execution.execution import Outcome
from app.principal import Principal
from app.protocol.errors import InvalidParams, Unavailable
from app.protocol.jsonrpc import canonical, dumps, loads
from app.state.interface import Kept, Store, StoreFull, StoreUnavailable
from app.toolkit.handles import owner_of

IDEMPOTENCY_KEY: Final = "mcp-tool-server/idempotencyKey"
"""``_meta`` of a request."""

MAX_KEY_CHARACTERS: Final = 255
GRACE_S: Final = 10.0
"""After the deadline of a call, for writing its outcome down."""

FIRST_LOOK_S: Final = 0.05
LAST_LOOK_S: Final = 0.5
"""How often a repeated call looks for the outcome of one that runs on another server."""

UNKNOWN: Final = (
    "A call with this idempotency key was begun and its outcome is not known: the connection went "
    "away while it ran. It is not run again. Find out what it has done, and use a new key for "
    "another call."
)

log = structlog.get_logger()

Headers = Sequence[tuple[bytes, bytes]]


class Known(NamedTuple):
    """What became of a call that was made before. ``result`` None: nobody knows.

    Attributes:
        headers: Response headers that repeat the mirrored parameters.
        error_id: What a generic error tells the caller, for the log.
    """

    result: bytes | None
    outcome: str
    headers: Headers = ()
    error_id: str | None = None


class _Entry(NamedTuple):
    """What the store holds under a key, before the result.

    Attributes:
        state: ``running``, ``open`` (there is no outcome, it may be claimed again; the result is
            the question that it ended with, if it did), ``done`` or ``unknown``.
        call: Digest of the tool and the arguments.
        ttl_s: How long the store was asked to keep it.
        runs_s: Of that, how long the call may run.
        token: Tells claims apart.
        owner: As whose the store counts it.
        headers: As of ``Known``, as text.
        error_id: As of ``Known``.
    """

    state: str
    call: str
    ttl_s: float = 0.0
    runs_s: float = 0.0
    token: str = ""
    owner: str = ""
    outcome: str = ""
    headers: Sequence[tuple[str, str]] = ()
    error_id: str | None = None

    def encoded(self, result: bytes = b"") -> bytes:
        return dumps(list(self)) + b"\n" + result

    def runs(self, left_s: float) -> bool:
        """Whether a call that was begun can be under way, with so much left of its time."""
        return self.state == "running" and self.ttl_s - left_s <= self.runs_s

    def known(self, result: bytes) -> Known:
        headers = tuple(
            (name.encode("latin-1"), value.encode("latin-1")) for name, value in self.headers
        )
        return Known(result, self.outcome, headers, self.error_id)


class Claim:
    """The right to run a call, and the duty to say what came of it.

    What is said is written down even if whoever says it is cancelled meanwhile.

    Args:
        before: What was there: a question that the call ended with, or nothing.
    """

    def __init__(self, claims: "Claims", name: str, entry: _Entry, before: bytes | None) -> None:
        self._claims = claims
        self._name = name
        self._entry = entry
        self._before = before

    async def settle(
        self, result: bytes, outcome: str, headers: Headers = (), error_id: str | None = None
    ) -> None:
        """This is what came of it, for ever."""
        done = self._told("done", outcome, headers)._replace(error_id=error_id)
        await self._replace(done, result)

    async def ask(self, result: bytes, outcome: str, headers: Headers = ()) -> None:
        """It has ended with a question; it goes on with the state that the question came with."""
        await self._replace(self._told("open", outcome, headers), result)

    async def lose(self) -> None:
        """It was stopped, and nobody knows what it has done."""
        await self._replace(self._entry._replace(state="unknown"))

    async def release(self) -> None:
        """Nothing came of it: it may be made again."""
        await self._replace(*self._as_before())

    async def give_back(self) -> None:
        """The same, of a claim that nobody knows whether it was made."""
        await self._write(*self._as_before(), is_mine=False)

    def _as_before(self) -> tuple[_Entry, bytes]:
        if self._before is None:
            return self._entry._replace(state="open"), b""
        header, _, result = self._before.partition(b"\n")
        return _Entry(*loads(header)), result

    def _told(self, state: str, outcome: str, headers: Headers) -> _Entry:
        texts = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]
        return self._entry._replace(state=state, outcome=outcome, headers=texts)

    async def _replace(self, after: _Entry, result: bytes = b"") -> None:
        try:
            await self._write(after, result)
        except asyncio.CancelledError:
            # Begun anew where nothing can cancel it: it may have been done or not.
            await self._claims.aside(self._write(after, result))
            raise

    async def _write(self, after: _Entry, result: bytes, *, is_mine: bool = True) -> None:
        claims, name, before = self._claims, self._name, self._entry.encoded()
        problem: object = None
        try:
            is_done = await claims.replace(name, before, after, result)
            if not is_done and is_mine and await claims.get(name) != after.encoded(result):
                problem = "the claim is gone, or was given up because the call took too long"
        except StoreUnavailable as error:
            # The caller gets its answer; who repeats the call is told that nobody knows.
            problem = error
            if isinstance(error, StoreFull):  # for that there is room
                with contextlib.suppress(StoreUnavailable):
                    await claims.replace(name, before, self._entry._replace(state="unknown"))
        finally:
            claims.wake_waiters(name)
        if problem is not None:
            log.error("outcome_not_kept", problem=str(problem))


class _Waiters:
    """Those of this process that wait for one call."""

    __slots__ = ("count", "event")

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.count = 0


class Started(NamedTuple):
    """A claim that is being made while something else is waited for.

    Attributes:
        taking: Ends with what is there; None: the claim is made.
    """

    name: str
    entry: _Entry
    taking: "asyncio.Task[Kept | None]"


class Claims:
    """Claims on calls with a key, and their outcomes.

    Args:
        ttl_s: How long an outcome is kept.
        open_ttl_s: How long the question is kept that a call has ended with.
    """

    def __init__(self, store: Store, *, ttl_s: float, open_ttl_s: float = 3600.0) -> None:
        self._store = store
        self._ttl_s = ttl_s
        self._open_ttl_s = min(ttl_s, open_ttl_s)
        self._waiters: dict[str, _Waiters] = {}
        self._aside: set[asyncio.Task[None]] = set()

    def start(
        self,
        key: str,
        principal: Principal,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        remaining_s: float,
    ) -> Started:
        """Begin to claim a call, in the same turn of the event loop. What comes of it is for
        ``claim`` or for ``abandon``; the arguments are those of ``claim``.
        """
        name = _name(key, principal)
        mine = self._entry(principal, tool, arguments, remaining_s)
        return Started(name, mine, asyncio.create_task(self._take(name, mine)))

    def _entry(
        self, principal: Principal, tool: str, arguments: Mapping[str, Any], remaining_s: float
    ) -> _Entry:
        call = hashlib.sha256(canonical([tool, arguments])).hexdigest()
        runs_s = remaining_s + GRACE_S
        # As long as somebody may run it, nobody else must find nothing.
        ttl_s = max(self._ttl_s, runs_s)
        owner = owner_of(principal.identity)
        return _Entry("running", call, ttl_s, runs_s, secrets.token_hex(8), owner)

    def abandon(self, started: Started) -> None:
        """Nobody will run the call."""
        self.aside(self._abandon(started))

    async def _abandon(self, started: Started) -> None:
        try:
            found = await started.taking
        except (StoreUnavailable, asyncio.CancelledError):
            return  # given back, as far as it was made
        if found is None:
            await Claim(self, started.name, started.entry, None).release()

    async def claim(
        self,
        key: str,
        principal: Principal,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        remaining_s: float,
        goes_on: bool = False,
        started: Started | None = None,
    ) -> Claim | Known:
        """The right to run a call; or what came of it before, once that is known.

        Args:
            arguments: As the client sent them.
            remaining_s: Time until the deadline of the call.
            goes_on: Whether the call brings back the state of a question that it ended with.
            started: Of ``start``, where that was called for this call.

        Raises:
            InvalidParams: The key was used for another call.
            Unavailable: The store does not answer: without it the call must not run.
        """
        try:
            if started is not None:
                name, mine, taking = started
                found = await taking
            else:
                name = _name(key, principal)
                mine = self._entry(principal, tool, arguments, remaining_s)
                found = await self._take(name, mine)
            return await self._claim(name, mine, found, tool, goes_on=goes_on)
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

    async def _claim(
        self, name: str, mine: _Entry, found: Kept | None, tool: str, *, goes_on: bool
    ) -> Claim | Known:
        pause_s = FIRST_LOOK_S
        while found is not None:
            before = found.value
            header, _, result = before.partition(b"\n")
            entry = _Entry(*loads(header))
            if entry.call != mine.call:
                raise InvalidParams(
                    f'_meta["{IDEMPOTENCY_KEY}"] was used for another call: another tool or other '
                    "arguments. Use a new key for each call."
                )
            if entry.state == "done":
                return entry.known(result)
            if entry.state == "open":
                if result and not goes_on:
                    return entry.known(result)  # the question, which may have been lost on its way
                if await self._follow(name, before, mine):
                    return Claim(self, name, mine, before)
            elif entry.runs(found.left_s):
                await self._wait(name, pause_s)
                pause_s = min(2 * pause_s, LAST_LOOK_S)
            else:
                if entry.state == "running":
                    log.warning("outcome_lost", tool=tool)
                    await self.replace(name, before, entry._replace(state="unknown"))
                return Known(None, Outcome.TOOL_ERROR)
            found = await self._take(name, mine)
        return Claim(self, name, mine, None)

    async def _take(self, name: str, mine: _Entry) -> Kept | None:
        try:
            value = mine.encoded()
            return await self._store.take(name, value, ttl_s=mine.ttl_s, owner=mine.owner)
        except StoreFull:
            raise
        except BaseException:
            # It may have been done all the same, and nobody will run the call.
            self.aside(Claim(self, name, mine, None).give_back())
            raise

    async def _follow(self, name: str, before: bytes, mine: _Entry) -> bool:
        """Claim a call that has ended with a question."""
        try:
            return await self.replace(name, before, mine)
        except StoreFull:
            raise
        except BaseException:
            self.aside(Claim(self, name, mine, before).give_back())
            raise

    async def get(self, name: str) -> bytes | None:
        """As ``Store.get``."""
        return await self._store.get(name)

    async def replace(
        self, name: str, before: bytes | None, after: _Entry, result: bytes = b""
    ) -> bool:
        """As ``Store.replace``."""
        ttl_s = self._ttl_s
        if after.state == "running":
            ttl_s = after.ttl_s
        elif after.state == "open":
            ttl_s = self._open_ttl_s
        value = after.encoded(result)
        return await self._store.replace(name, before, value, ttl_s=ttl_s, owner=after.owner)

    def aside(self, writing: Coroutine[Any, Any, None]) -> "asyncio.Future[None]":
        """Write in a task of its own, for a bounded time. Returns what can be waited for."""
        task = asyncio.create_task(_bounded(writing))
        self._aside.add(task)
        task.add_done_callback(self._aside.discard)
        return asyncio.shield(task)

    async def stop(self, timeout_s: float) -> None:
        """The server ends; what is being written may still be."""
        if self._aside:
            await asyncio.wait(self._aside, timeout=timeout_s)

    def wake_waiters(self, name: str) -> None:
        """A call of this process has ended: those who wait for it look again."""
        waiters = self._waiters.pop(name, None)
        if waiters is not None:
            waiters.event.set()

    async def _wait(self, name: str, pause_s: float) -> None:
        waiters = self._waiters.get(name)
        if waiters is None:
            waiters = self._waiters[name] = _Waiters()
        waiters.count += 1
        try:
            async with asyncio.timeout(pause_s):
                await waiters.event.wait()
        except TimeoutError:
            pass
        finally:
            waiters.count -= 1
            if not waiters.count and self._waiters.get(name) is waiters:
                del self._waiters[name]  # the last one: another server runs it, or it waits on


async def _bounded(writing: Coroutine[Any, Any, None]) -> None:
    try:
        async with asyncio.timeout(GRACE_S):
            await writing
    except TimeoutError:
        log.error("outcome_not_kept", problem="the store did not answer in time")  # noqa: TRY400  # no bug of ours


def idempotency_key(key: Any) -> str:
    """The key of a request, as the member of its ``_meta`` has it.

    Raises:
        InvalidParams: It is no text of 1 to 255 characters.
    """
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
