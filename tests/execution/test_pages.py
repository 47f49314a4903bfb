"""Pages by themselves: what the store sees of them, when they end, and what a tool gets."""

import asyncio
import re
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr

from app.execution.asking import Asking, Desk
from app.execution.pages import Pages, pages_url
from app.principal import Principal
from app.protocol.asking import Retry
from app.protocol.sealed import KeyRing
from app.settings import Settings
from app.state.interface import StoreUnavailable
from app.state.memory import MemoryStore
from app.toolkit import ElicitResult, ToolError
from app.toolkit.asking import Pause
from tests.support.cases import rows


class Slow(MemoryStore):
    """A store that is asked over a network."""

    async def set(self, name: str, value: bytes, *, ttl_s: float, owner: str | None = None) -> None:
        for _ in range(50):
            await asyncio.sleep(0)
        await super().set(name, value, ttl_s=ttl_s, owner=owner)


URL = "https://tools.example.com/elicit"
TTL_S = 60.0
CAPABILITIES: dict[str, Any] = {"elicitation": {"url": {}}}
ADA, EVE = Principal(issuer="i", subject="ada"), Principal(issuer="i", subject="eve")
SECRET = "hunter2-hunter2"


class Account(BaseModel):
    password: SecretStr


class Stricter(BaseModel):
    password: SecretStr
    pin: SecretStr


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


class Full(MemoryStore):
    """A store without room."""

    def __init__(self) -> None:
        super().__init__(max_entries=0)


def desk_of(clock: Clock, store: MemoryStore | None = None, keys: bytes = b"k" * 32) -> Desk:
    store = MemoryStore(clock=clock) if store is None else store
    return Desk(KeyRing([keys]), store, ask_ttl_s=TTL_S, pages_url=lambda _: URL, clock=clock)


async def asked(asking: Asking, model: type[BaseModel] = Account) -> tuple[str, str, str]:
    """Handle, message and state of a question that pauses the tool."""
    with pytest.raises(Pause):
        await asking.elicit_page("a", "Your password?", model)
    requests, state = asking.result()
    params = requests["a"]["params"]
    return params["url"].removeprefix(f"{URL}/"), params["message"], state


def begin(desk: Desk, state: str | None = None, action: str | None = None) -> Asking:
    answers = {} if action is None else {"a": {"action": action}}
    retry = None if state is None else Retry(answers, state)
    return desk.begin("tool", {}, ADA, CAPABILITIES, retry)


async def completed(desk: Desk, handle: str, **content: str) -> None:
    page = await desk.pages.find(handle)
    assert page is not None
    assert await desk.pages.complete(handle, page, content)


async def test_the_store_sees_neither_handles_nor_what_is_in_a_page() -> None:
    store = MemoryStore()
    desk = desk_of(Clock(), store)
    handle, _, state = await asked(begin(desk))
    await completed(desk, handle, password=SECRET)
    seen = repr(store._entries)
    for text in (handle, "ada", "Your password", "tool", SECRET, "hunter2"):
        assert text not in seen
    assert handle not in state and SECRET not in state
    assert len(store) == 2
    asking = begin(desk, state, "accept")
    answer = await asking.elicit_page("a", "Your password?", Account)
    assert answer.data is not None and answer.data.password.get_secret_value() == SECRET
    # What is carried to the next round is that the client agreed, and where the page is.
    assert asking._answers["a"][1] == {"action": "accept"}
    assert asking.page_handles == {"a": handle} and asking._once == {}


async def test_what_is_sealed_for_one_page_opens_for_no_other() -> None:
    store = MemoryStore()
    desk = desk_of(Clock(), store)
    (one, _, _), (other, _, _) = await asked(begin(desk)), await asked(begin(desk))
    for handle, password in ((one, "first"), (other, "second")):
        await completed(desk, handle, password=password)
    for kind in ("page:", "entered:"):
        entries = store._entries._entries
        first, second = (name for name in entries if name.startswith(kind))
        entries[first], entries[second] = entries[second], entries[first]
    for handle in (one, other):
        assert await desk.pages.find(handle) is None
        assert await desk.pages.entered(handle, ADA) is None


async def test_what_was_entered_is_for_its_caller_alone() -> None:
    desk = desk_of(Clock())
    handle, _, _ = await asked(begin(desk))
    await completed(desk, handle, password=SECRET)
    assert await desk.pages.entered(handle, ADA) == {"password": SECRET}
    for other in (EVE, Principal(), Principal(issuer="j", subject="ada")):
        assert await desk.pages.entered(handle, other) is None


async def test_other_keys_open_nothing() -> None:
    store, clock = MemoryStore(), Clock()
    desk = desk_of(clock, store)
    handle, _, _ = await asked(begin(desk))
    await completed(desk, handle, password=SECRET)
    assert await desk_of(clock, store, b"j" * 32).pages.entered(handle, ADA) is None


async def test_a_page_is_completed_once() -> None:
    desk = desk_of(Clock())
    handle, _, _ = await asked(begin(desk))
    page = await desk.pages.find(handle)
    assert page is not None
    assert await desk.pages.complete(handle, page, {"password": "first"})
    assert not await desk.pages.complete(handle, page, {"password": "second"})
    assert await desk.pages.find(handle) is None
    assert await desk.pages.entered(handle, ADA) == {"password": "first"}


async def test_a_round_gives_the_page_its_whole_time_again() -> None:
    clock = Clock()
    desk = desk_of(clock)
    handle, _, state = await asked(begin(desk))
    clock.now += TTL_S - 1
    again, message, state = await asked(begin(desk, state, "accept"))
    assert again == handle and "has not been completed yet" in message
    clock.now += TTL_S - 1
    assert await desk.pages.find(handle) is not None
    clock.now += 1
    assert await desk.pages.find(handle) is None


@pytest.mark.parametrize("action", ["accept", None])
async def test_what_was_entered_and_has_expired_is_asked_for_on_a_new_page(
    action: str | None,
) -> None:
    clock = Clock()
    desk = desk_of(clock)
    handle, _, state = await asked(begin(desk))
    await completed(desk, handle, password=SECRET)
    clock.now += TTL_S - 1
    asking = begin(desk, state, action)
    answer = await asking.elicit_page("a", "Your password?", Account)
    assert answer.data is not None
    assert answer.data.password.get_secret_value() == SECRET
    _, state = asking.result()
    clock.now += 2
    other, _, _ = await asked(begin(desk, state))
    assert other != handle


async def test_a_form_that_was_changed_meanwhile_is_filled_in_on_a_new_page() -> None:
    desk = desk_of(Clock())
    handle, _, state = await asked(begin(desk))
    await completed(desk, handle, password=SECRET)
    other, message, _ = await asked(begin(desk, state, "accept"), Stricter)
    assert other != handle and SECRET not in message


async def test_another_server_checks_what_the_schema_says() -> None:
    clock = Clock()
    store = MemoryStore(clock=clock)
    here, there = desk_of(clock, store), desk_of(clock, store)
    handle, _, _ = await asked(begin(here))
    page = await there.pages.find(handle)
    assert page is not None
    assert there.pages.problems(page, {}) == {"password": "is required"}
    assert there.pages.problems(page, {"password": SECRET}) == {}
    assert await there.pages.complete(handle, page, {"password": SECRET})
    assert await here.pages.entered(handle, ADA) == {"password": SECRET}


async def test_a_no_closes_the_page_and_stays_a_no() -> None:
    desk = desk_of(Clock())
    handle, _, state = await asked(begin(desk))
    asking = begin(desk, state, "decline")
    assert await asking.elicit_page("a", "Your password?", Account) == ElicitResult("decline")
    assert await desk.pages.find(handle) is None
    _, state = asking.result()
    again = await begin(desk, state).elicit_page("a", "Your password?", Account)
    assert again == ElicitResult("decline")
    assert await desk.pages.find(handle) is None


@rows("action", ("declined", "decline"), ("cancelled", "cancel"))
async def test_what_was_entered_is_forgotten_with_a_no(action: str) -> None:
    store = MemoryStore()
    desk = desk_of(Clock(), store)
    handle, _, state = await asked(begin(desk))
    await completed(desk, handle, password=SECRET)
    assert len(store) == 2
    answer = await begin(desk, state, action).elicit_page("a", "Your password?", Account)
    assert answer.action == action and answer.data is None
    assert len(store) == 0


async def test_without_a_state_nothing_is_known_and_a_new_page_is_asked_for() -> None:
    desk = desk_of(Clock())
    handle, _, _ = await asked(begin(desk))
    await completed(desk, handle, password=SECRET)
    retry = Retry({"a": {"action": "accept"}}, None)
    other, message, _ = await asked(desk.begin("tool", {}, ADA, CAPABILITIES, retry))
    assert other != handle and "has not been completed yet" in message


async def test_a_slow_store_does_not_part_questions_that_are_asked_at_once() -> None:
    asking = begin(desk_of(Clock(), Slow()))
    with pytest.raises(Pause):
        await asyncio.gather(
            asking.elicit_page("a", "Your password?", Account),
            asking.elicit_url("b", "Please look.", "https://example.com"),
            asking.elicit_page("c", "And the other?", Account),
        )
    requests, _ = asking.result()
    assert sorted(requests) == ["a", "b", "c"]
    assert requests["a"]["params"]["url"] != requests["c"]["params"]["url"]


class Gone(MemoryStore):
    """A store that cannot be reached."""

    async def set(self, name: str, value: bytes, *, ttl_s: float, owner: str | None = None) -> None:
        raise StoreUnavailable(f"{name} {len(value)} {ttl_s} {owner}")


@rows(
    "store, says",
    ("away", Gone, "cannot be reached at the moment"),
    ("full", Full, "no room for another page"),
)
async def test_a_store_that_does_not_keep_a_page_is_a_word_for_the_model(
    store: type[MemoryStore], says: str
) -> None:
    asking = begin(desk_of(Clock(), store()))
    with pytest.raises(ToolError, match=says):
        await asking.elicit_page("a", "Your password?", Account)


async def test_a_message_with_a_link_is_refused() -> None:
    with pytest.raises(ValueError, match="has a link"):
        await begin(desk_of(Clock())).elicit_page("a", "See https://evil.example.com", Account)


@pytest.mark.parametrize("handle", ["", "x", "A" * 42, "A" * 44, "Ä" * 43, "A" * 42 + "\n"])
async def test_what_is_no_handle_is_not_looked_up(handle: str) -> None:
    pages = Pages(KeyRing([b"k" * 32]), Full(), ttl_s=1)
    assert await pages.find(handle) is None


def test_handles_are_long_and_never_the_same() -> None:
    pages = Pages(KeyRing([b"k" * 32]), MemoryStore(), ttl_s=1)
    handles = {pages.new_handle() for _ in range(100)}
    assert len(handles) == 100
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{43}", handle) for handle in handles)


def _settings(public_url: str, browser: Any) -> Settings:
    issuer = {"issuer": "https://login.example.com", "browser": browser}
    return Settings.model_validate(
        {"server": {"public_url": public_url}, "auth": {"issuers": [issuer]}}
    )


def test_pages_are_below_the_public_url() -> None:
    settings = _settings("https://tools.example.com/one", {"client_id": "pages"})
    caller = Principal(issuer="https://login.example.com", subject="ada")
    assert pages_url(settings, caller) == "https://tools.example.com/one/elicit"


def test_secrets_are_not_typed_over_plain_http() -> None:
    with pytest.raises(ValueError, match="begins with https://"):
        _settings("http://tools.example.com", {"client_id": "pages"})
    _settings("http://tools.example.com", None)
    _settings("http://127.0.0.1:8000", {"client_id": "pages"})
