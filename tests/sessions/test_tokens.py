"""Session tokens: for one caller, for a time, and never too long."""

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
from app.sessions.tokens import DEFAULT_LEVEL, MAX_TOKEN_CHARACTERS, Sessions
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
    return Sessions(how.pop("keys", OLD), how.pop("store", MemoryStore()), ttl_s=60, **how)


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
        assert (await each.find(one, ADA)).level == "error"
        assert (await each.find(other, ADA)).level == DEFAULT_LEVEL


async def test_an_ended_session_has_no_level_to_come_back_with() -> None:
    sessions = _sessions()
    token = sessions.begin(_opening(), ADA)
    session = await sessions.find(token, ADA)
    await sessions.end(session)
    with pytest.raises(NotFound):
        await sessions.find(token, ADA)


async def test_many_sessions_cost_nothing() -> None:
    """A hundred thousand that were opened and left: nothing is kept of them."""
    store = MemoryStore()
    sessions = _sessions(store=store)
    for _ in range(100_000):
        sessions.begin(_opening(), ADA)
    assert len(store) == 0 and not sessions._opened


async def test_without_the_store_nobody_says_that_a_session_goes_on() -> None:
    sessions = _sessions(store=_Gone())
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
