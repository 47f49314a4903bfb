"""One thread writes for all: in groups, and without it nothing waits for ever."""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence

import pytest

import app.audit.writer
from app.audit.chain import Chain
from app.audit.writer import Writer, Written
from app.observability.metrics import AUDIT_FAILURES
from tests.sessions.carrying import until


class Shelf:
    """A sink that keeps records, unless it is told to fail or to hang."""

    def __init__(self) -> None:
        self.batches: list[list[bytes]] = []
        self.problem: BaseException | None = None
        self.runs = threading.Event()
        self.runs.set()
        self.writes = False
        self.thread: str | None = None
        self.is_closed = False

    def open(self, chain: Chain) -> None:
        """Nothing to do."""

    def write(self, records: Sequence[bytes]) -> None:
        """Keep them."""
        self.writes = True
        self.runs.wait()
        self.thread = threading.current_thread().name
        if self.problem is not None:
            raise self.problem
        self.batches.append(list(records))

    def close(self) -> None:
        """Take note."""
        self.is_closed = True

    @property
    def records(self) -> list[bytes]:
        """All of them."""
        return [record for batch in self.batches for record in batch]


@pytest.fixture
async def shelf() -> AsyncIterator[Shelf]:
    """A sink."""
    found = Shelf()
    yield found
    found.runs.set()


def made(what: bytes) -> bytes:
    """The record of something, unless there is a bug."""
    if what == b"bug":
        raise ValueError(what)
    return what


@pytest.fixture
async def writer(shelf: Shelf) -> AsyncIterator[Writer[bytes]]:
    """Its writer, which has little patience."""
    found = Writer(shelf, make=made, gap=lambda lost: b"gap %d" % lost, patience_s=0.2)
    yield found
    shelf.runs.set()
    shelf.problem = None
    await found.stop()
    assert shelf.is_closed


async def outcome(written: Written | None) -> bool | None:
    """What somebody who waits is told."""
    if written is None:
        return None
    async with asyncio.timeout(10):
        return await asyncio.shield(written)


async def test_records_that_come_together_are_written_together(
    shelf: Shelf, writer: Writer[bytes]
) -> None:
    waiting = {id(writer.put(b"%d" % number)) for number in range(50)}
    assert len(waiting) == 1  # and everybody is woken by one word
    assert await outcome(writer.put(b"50")) is True
    assert shelf.batches == [[b"%d" % number for number in range(51)]]
    assert shelf.thread == "audit"


async def test_what_comes_while_one_is_written_shares_the_next(
    shelf: Shelf, writer: Writer[bytes]
) -> None:
    shelf.runs.clear()
    first = writer.put(b"a")
    await until(lambda: shelf.writes, "the first to be written")
    later = [writer.put(name) for name in (b"b", b"c")]
    shelf.runs.set()
    assert await outcome(first) is True
    assert await outcome(later[0]) is True
    assert shelf.batches == [[b"a"], [b"b", b"c"]]


async def test_a_record_that_cannot_be_made_costs_no_other_one(
    shelf: Shelf, writer: Writer[bytes]
) -> None:
    waiting = [writer.put(what) for what in (b"a", b"bug", b"b")]
    assert [await outcome(each) for each in waiting] == [True, True, True]
    assert shelf.records == [b"a", b"gap 1", b"b"]
    assert writer.lost == 1


@pytest.mark.parametrize("problem", [OSError(28, "No space left on device"), ValueError("a bug")])
async def test_a_sink_that_fails_holds_nobody_up_and_gets_all_later(
    shelf: Shelf, writer: Writer[bytes], problem: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app.audit.writer, "RETRY_S", 0.01)
    counted = AUDIT_FAILURES.copy().get((), 0)
    shelf.problem = problem
    assert await outcome(writer.put(b"a")) is False
    assert writer.is_failing
    assert await outcome(writer.put(b"b")) is None
    assert writer.unrecorded == 2
    assert AUDIT_FAILURES.copy()[()] == counted + 2
    shelf.problem = None
    await until(lambda: not writer.is_failing, "its recovery")
    assert await outcome(writer.put(b"c")) is True
    assert shelf.records == [b"a", b"b", b"c"]
    assert writer.lost == 0


async def test_a_sink_that_hangs_holds_answers_up_for_a_while_alone(
    shelf: Shelf, writer: Writer[bytes]
) -> None:
    shelf.runs.clear()
    assert await outcome(writer.put(b"a")) is False
    assert writer.is_failing
    assert await outcome(writer.put(b"b")) is None
    shelf.runs.set()
    await until(lambda: not writer.is_failing, "its recovery")
    assert await outcome(writer.put(b"c")) is True
    assert shelf.records == [b"a", b"b", b"c"]


async def test_what_does_not_fit_into_memory_is_counted_and_that_is_put_on_record(
    shelf: Shelf, writer: Writer[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app.audit.writer, "MAX_WAITING", 5)
    shelf.runs.clear()
    assert await outcome(writer.put(b"a")) is False
    for number in range(12):
        assert writer.put(b"%d" % number) is None
    assert (writer.lost, len(writer._waiting)) == (7, 5)
    shelf.runs.set()
    await until(lambda: len(shelf.records) == 7, "what waited")
    assert await outcome(writer.put(b"b")) is True
    assert shelf.records == [b"a", b"0", b"1", b"2", b"3", b"4", b"gap 7", b"b"]


async def test_the_end_writes_what_waits(shelf: Shelf) -> None:
    writer = Writer(shelf, make=made, gap=lambda _: b"", patience_s=5)
    written = writer.put(b"a")
    await writer.stop()
    assert shelf.records == [b"a"]
    assert await outcome(written) is True
    assert writer.put(b"b") is None


async def test_the_end_does_not_wait_for_a_sink_that_hangs(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app.audit.writer, "STOP_S", 0.05)
    writer = Writer(shelf, make=made, gap=lambda _: b"", patience_s=5)
    shelf.runs.clear()
    written = writer.put(b"a")
    await asyncio.wait_for(writer.stop(), 5)
    assert await outcome(written) is False
    # Its thread ends when the sink lets it, and nobody is told.
    shelf.runs.set()
    await until(lambda: shelf.is_closed, "the end of the sink")
    await writer.stop()
