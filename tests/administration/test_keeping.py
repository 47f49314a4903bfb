"""The document in the store: found cheaply, never lost, never overwritten unseen."""

import asyncio

import pytest

from app.fleet.control import Control, Unusable
from app.fleet.keeping import DOCUMENT, EPOCH, FULL_LOOK_S, RENEW_S, TTL_S, Keeper
from app.policy.rollouts import Switch
from app.state.interface import StoreUnavailable
from app.state.memory import MemoryStore
from tests.administration.replicas import Line
from tests.auth.desk import Clock

OFF = Switch(enabled=False)


class Counting(Line):
    """Counts what is read."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.reads: list[str] = []

    async def get(self, name: str) -> bytes | None:
        self.reads.append(name)
        return await super().get(name)


async def test_a_look_at_what_has_not_changed_reads_a_few_bytes() -> None:
    clock = Clock()
    store = Counting(MemoryStore(clock=clock))
    keeper = Keeper(store, clock=clock)
    await keeper.change(lambda before: before.with_switch("a", OFF))
    await keeper.look()
    store.reads.clear()
    for _ in range(5):
        assert (await keeper.look()).revision == 1
    assert store.reads == [EPOCH] * 5
    clock.passes(FULL_LOOK_S)
    store.reads.clear()
    await keeper.look()
    assert DOCUMENT in store.reads


async def test_changes_of_two_keepers_add_up() -> None:
    store = MemoryStore()
    one, two = Keeper(store), Keeper(store)

    async def change(keeper: Keeper, tool: str) -> Control:
        return await keeper.change(lambda before: before.with_switch(tool, OFF))

    done = await asyncio.gather(
        *(change(keeper, f"{n}-{k}") for k, keeper in enumerate((one, two)) for n in range(10))
    )
    assert sorted(each.revision for each in done) == list(range(1, 21))
    assert len((await one.look(whole=True)).switches) == 20
    assert await one.look() == await two.look(whole=True)


async def test_a_change_that_changes_nothing_is_none() -> None:
    keeper = Keeper(MemoryStore())
    await keeper.change(lambda before: before.with_switch("a", OFF))
    again = await keeper.change(lambda before: before.with_switch("a", OFF))
    assert again.revision == 1


async def test_an_epoch_that_was_not_written_is_mended_by_whoever_finds_out() -> None:
    clock = Clock()
    store = MemoryStore(clock=clock)
    writer, reader = Keeper(store, clock=clock), Keeper(store, clock=clock)
    await reader.look()
    await writer.change(lambda before: before.with_switch("a", OFF))
    await store.delete(EPOCH)  # the writer died between the two
    assert (await reader.look()).revision == 0
    clock.passes(FULL_LOOK_S)
    assert (await reader.look()).revision == 1
    assert await store.get(EPOCH) == reader.newest.epoch.encode()


async def test_of_two_documents_the_higher_revision_wins() -> None:
    store = MemoryStore()
    keeper = Keeper(store)
    await keeper.change(lambda before: before.with_switch("a", OFF))
    old = await store.get(DOCUMENT)
    assert old is not None
    await keeper.change(lambda before: before.with_switch("b", OFF))
    # A store that came back as it was some time ago.
    await store.set(DOCUMENT, old, ttl_s=60)
    assert (await keeper.look(whole=True)).revision == 2
    assert set((await Keeper(store).look()).switches) == {"a", "b"}


async def test_of_two_with_one_revision_the_one_in_the_store_counts() -> None:
    store, other = MemoryStore(), MemoryStore()
    keeper, twin = Keeper(store), Keeper(other)
    await keeper.change(lambda before: before.with_switch("a", OFF))
    await twin.change(lambda before: before.with_switch("b", OFF))
    there = await other.get(DOCUMENT)
    assert there is not None
    await store.set(DOCUMENT, there, ttl_s=60)
    assert set((await keeper.look(whole=True)).switches) == {"b"}


async def test_what_is_no_document_is_left_alone() -> None:
    store = MemoryStore()
    keeper = Keeper(store)
    await keeper.change(lambda before: before.with_switch("a", OFF))
    for garbage in (b"garbage", b'{"format": 2}'):
        await store.set(DOCUMENT, garbage, ttl_s=60)
        with pytest.raises(Unusable):
            await keeper.look(whole=True)
        with pytest.raises(Unusable):
            await keeper.change(lambda before: before.with_switch("b", OFF))
        assert await store.get(DOCUMENT) == garbage
        assert set(keeper.newest.switches) == {"a"}
    await store.delete(DOCUMENT)
    assert (await keeper.look(whole=True)).revision == 1
    assert await store.get(DOCUMENT) is not None


async def test_a_store_that_does_not_answer_changes_nothing() -> None:
    line = Line(MemoryStore())
    keeper = Keeper(line)
    line.is_cut = True
    for asked in (keeper.look(), keeper.change(lambda before: before.with_reload())):
        with pytest.raises(StoreUnavailable):
            await asked
    assert not keeper.has_read
    line.is_cut = False
    assert (await keeper.look()).revision == 0
    assert keeper.has_read


async def test_a_document_ends_only_where_nobody_lives_to_renew_it() -> None:
    clock = Clock()
    store = MemoryStore(clock=clock)
    keeper = Keeper(store, clock=clock)
    await keeper.change(lambda before: before.with_switch("a", OFF))
    for _ in range(3):
        clock.passes(TTL_S - 2 * RENEW_S)
        await keeper.look()
    assert len((await Keeper(store, clock=clock).look()).switches) == 1
    clock.passes(TTL_S)
    assert len((await Keeper(store, clock=clock).look()).switches) == 0
