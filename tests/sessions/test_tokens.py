"""Session tokens: for one caller, for a time, and never too long."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.legacy.initialize import Opening
from app.legacy.revisions import REVISIONS
from app.principal import ANONYMOUS, Principal
from app.protocol.errors import NotFound, Unavailable
from app.protocol.schema import Implementation
from app.protocol.sealed import KeyRing
from app.sessions.tokens import DEFAULT_LEVEL, MAX_TOKEN_CHARACTERS, REMEMBERED, Sessions
from app.state.interface import StoreUnavailable
from app.state.memory import MemoryStore

OLD, NEW = KeyRing([b"o" * 32]), KeyRing([b"n" * 32, b"o" * 32])
ADA = Principal(issuer="i", subject="ada", scopes=frozenset({"a"}), credential_id="one")
ADA_LATER = Principal(issuer="i", subject="ada", scopes=frozenset({"b"}), credential_id="two")
STRANGERS = (
    Principal(issuer="i", subject="eve"),
    Principal(issuer="j", subject="ada"),
    Principal(issuer="", subject="iada"),
    ANONYMOUS,
)
EVERYTHING: dict[str, Any] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}},
    "roots": {},
}


class _Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class _Gone(MemoryStore):
    async def get(self, name: str) -> bytes | None:
        raise StoreUnavailable(name)

    async def set(self, *_: Any, **__: Any) -> None:
        raise StoreUnavailable("gone")


def _opening(name: str = "c", version: str = "1") -> Opening:
    return Opening(REVISIONS["2025-11-25"], EVERYTHING, Implementation(name, version))


def _sessions(**how: Any) -> Sessions:
    store = how.pop("store", MemoryStore())
    ended = how.pop("ended", MemoryStore())
    return Sessions(how.pop("keys", OLD), store, ended=ended, ttl_s=60, **how)


async def test_a_token_tells_what_was_settled_to_every_replica() -> None:
    store = MemoryStore()
    one, other = _sessions(store=store), _sessions(store=store)
    found = await other.find(one.begin(_opening(), ADA), ADA)
    assert found.revision.version == "2025-11-25"
    assert found.capabilities == EVERYTHING and found.client == Implementation("c", "1")


async def test_a_refreshed_credential_goes_on_and_a_stranger_does_not() -> None:
    sessions = _sessions()
    token = sessions.begin(_opening(), ADA)
    assert (await sessions.find(token, ADA_LATER)).id == (await sessions.find(token, ADA)).id
    for stranger in STRANGERS:
        with pytest.raises(NotFound):
            await sessions.find(token, stranger)


async def test_keys_can_be_rotated_under_a_session() -> None:
    store = MemoryStore()
    token = _sessions(store=store).begin(_opening(), ADA)
    assert await _sessions(store=store, keys=NEW).find(token, ADA)
    with pytest.raises(NotFound):
        await _sessions(store=store, keys=KeyRing([b"x" * 32])).find(token, ADA)


async def test_a_session_ends_with_its_time_and_when_it_is_ended() -> None:
    clock = _Clock()
    sessions = _sessions(clock=clock)
    token, other = (sessions.begin(_opening(), ADA) for _ in range(2))
    await sessions.end(await sessions.find(token, ADA))
    with pytest.raises(NotFound):
        await sessions.find(token, ADA)
    assert await sessions.find(other, ADA)
    clock.now += 60
    with pytest.raises(NotFound):
        await sessions.find(other, ADA)


async def test_a_level_belongs_to_its_session() -> None:
    store = MemoryStore()
    sessions, replica = _sessions(store=store), _sessions(store=store)
    one, other = sessions.begin(_opening(), ADA), sessions.begin(_opening(), ADA)
    await sessions.set_level(await sessions.find(one, ADA), "error")
    for each in (sessions, replica):
        assert await each.level(await each.find(one, ADA)) == "error"
        assert await each.level(await each.find(other, ADA)) == DEFAULT_LEVEL


class _Slow(MemoryStore):
    """Writes when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.may_write = asyncio.Event()

    async def set(self, *args: Any, **how: Any) -> None:
        await self.may_write.wait()
        await super().set(*args, **how)


async def test_who_sets_a_level_meanwhile_does_not_bring_an_ended_session_back() -> None:
    store = _Slow()
    sessions = _sessions(store=store)
    token = sessions.begin(_opening(), ADA)
    session = await sessions.find(token, ADA)
    setting = asyncio.create_task(sessions.set_level(session, "debug"))
    await asyncio.sleep(0)
    await sessions.end(session)
    store.may_write.set()
    await setting
    with pytest.raises(NotFound):
        await sessions.find(token, ADA)


async def test_the_levels_of_one_caller_keep_nobody_from_anything() -> None:
    """A hundred thousand sessions of one caller, each with a level."""
    sessions = _sessions()
    eve, *others = STRANGERS
    refused = 0
    for _ in range(100_000):
        try:
            await sessions.set_level(
                await sessions.find(sessions.begin(_opening(), eve), eve), "info"
            )
        except Unavailable:
            refused += 1
    assert 0 < refused < 100_000
    for other in (ADA, *others):
        token = sessions.begin(_opening(), other)
        session = await sessions.find(token, other)
        await sessions.set_level(session, "error")
        await sessions.end(session)
        with pytest.raises(NotFound):
            await sessions.find(token, other)


async def test_a_session_of_a_revision_that_is_not_known_here_is_none() -> None:
    sessions = _sessions()
    unknown = replace(REVISIONS["2025-11-25"], version="2025-12-31")
    token = sessions.begin(_opening()._replace(revision=unknown), ADA)
    with pytest.raises(NotFound):
        await sessions.find(token, ADA)


async def test_the_tokens_that_are_used_are_the_ones_remembered() -> None:
    sessions = _sessions()
    used = sessions.begin(_opening(), ADA)
    first = await sessions.find(used, ADA)
    for _ in range(REMEMBERED):
        await sessions.find(sessions.begin(_opening(), ADA), ADA)
        assert await sessions.find(used, ADA) is first


async def test_many_sessions_cost_nothing() -> None:
    """A hundred thousand that were opened and left: nothing is kept of them."""
    store = MemoryStore()
    sessions = _sessions(store=store)
    for _ in range(100_000):
        sessions.begin(_opening(), ADA)
    assert len(store) == 0 and not sessions._opened


async def test_without_the_store_nobody_says_that_a_session_goes_on() -> None:
    sessions = _sessions(ended=_Gone())
    token = sessions.begin(_opening(), ADA)
    with pytest.raises(Unavailable):
        await sessions.find(token, ADA)


@given(st.text(st.characters(exclude_categories=["Cs"])), st.text(max_size=3000))
async def test_no_client_makes_a_token_too_long(name: str, version: str) -> None:
    sessions = _sessions()
    version = version.encode("utf-8", "replace").decode()
    token = sessions.begin(_opening(name * 50, version), ADA)
    assert len(token) <= MAX_TOKEN_CHARACTERS and token.isascii() and token.isprintable()
    assert await sessions.find(token, ADA)


@given(st.text(max_size=300))
async def test_nothing_that_was_made_up_is_a_session(token: str) -> None:
    with pytest.raises(NotFound):
        await _sessions().find(token, ADA)
