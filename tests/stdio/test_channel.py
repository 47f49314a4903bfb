"""The channel by itself, with real pipes."""

import asyncio
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from app.stdio import channel as channel_module
from app.stdio.channel import CLOSED, MAX_BACKLOG_BYTES, STUCK, Channel

WAIT_S = 10.0
PIPE_BYTES = 1 << 16


class Pipes(NamedTuple):
    """Ours and the client's ends."""

    source: int
    sink: int
    from_client: int
    to_client: int


def shut(descriptor: int) -> None:
    with contextlib.suppress(OSError):  # the test has done it
        os.close(descriptor)


@pytest.fixture
def pipes() -> Iterator[Pipes]:
    source, from_client = os.pipe()
    to_client, sink = os.pipe()
    yield Pipes(source, sink, from_client, to_client)
    for descriptor in (from_client, to_client, source, sink):
        shut(descriptor)


def opened(pipes: Pipes, patience_s: float = WAIT_S) -> Channel:
    return Channel(pipes.source, pipes.sink, max_line_bytes=100, patience_s=patience_s)


async def test_lines_come_until_the_client_closes_its_end(pipes: Pipes) -> None:
    channel = opened(pipes)
    os.write(pipes.from_client, b"one\ntwo\nthr")
    os.close(pipes.from_client)

    async with asyncio.timeout(WAIT_S):
        assert [line async for line in channel.lines()] == [b"one", b"two", b"thr"]


async def test_a_file_is_as_good_as_a_pipe(pipes: Pipes, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"one\n" + b"x" * 101 + b"\ntwo\n")
    descriptor = os.open(file, os.O_RDONLY)
    try:
        channel = opened(pipes._replace(source=descriptor))
        assert [line async for line in channel.lines()] == [b"one", None, b"two"]
    finally:
        os.close(descriptor)


async def test_messages_are_lines_in_the_order_in_which_they_were_put(pipes: Pipes) -> None:
    channel = opened(pipes)
    sent = [b"%d" % number for number in range(1000)]
    for message in sent:
        channel.put(message)
    await channel.flush(WAIT_S)

    assert os.read(pipes.to_client, 65536).split(b"\n") == [*sent, b""]
    assert not channel.lost.done()


async def test_a_client_that_takes_nothing_is_given_up(pipes: Pipes) -> None:
    channel = opened(pipes, patience_s=0.2)
    channel.put(b"x" * 1_000_000)

    async with asyncio.timeout(WAIT_S):
        assert await channel.lost == STUCK
        await channel.room()
        await channel.flush(WAIT_S)
    channel.put(b"more")
    assert channel._waiting == []
    os.close(pipes.to_client)  # lets the thread go


async def test_a_client_that_reads_slowly_is_not_given_up(pipes: Pipes) -> None:
    channel = opened(pipes, patience_s=0.4)
    channel.put(b"x" * 1_000_000)
    flushing = asyncio.create_task(channel.flush(0.4))
    read = 0
    async with asyncio.timeout(WAIT_S):
        while read < 1_000_001:
            assert not flushing.done() or read > 1_000_000 - PIPE_BYTES
            await asyncio.sleep(0.05)  # the client's pace: twice its patience in all
            read += len(await asyncio.to_thread(os.read, pipes.to_client, PIPE_BYTES))
        await flushing
    assert not channel.lost.done()


async def test_what_waits_for_a_client_that_takes_nothing_is_left(pipes: Pipes) -> None:
    channel = opened(pipes)
    channel.put(b"x" * 1_000_000)

    async with asyncio.timeout(WAIT_S):
        await channel.flush(0.1)
    assert not channel.lost.done()
    os.close(pipes.to_client)  # lets the thread go


async def test_a_client_that_has_closed_its_end_is_lost(pipes: Pipes) -> None:
    channel = opened(pipes)
    os.close(pipes.to_client)
    channel.put(b"hello?")

    async with asyncio.timeout(WAIT_S):
        assert await channel.lost == CLOSED


async def test_nothing_more_is_read_while_too_much_waits_for_the_client(
    pipes: Pipes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel_module, "READ_BYTES", 4)
    channel = opened(pipes)
    os.write(pipes.from_client, b"one\ntwo\n")
    lines = channel.lines()
    assert await anext(lines) == b"one"
    channel.put(b"x" * (MAX_BACKLOG_BYTES + 1))
    coming = asyncio.ensure_future(anext(lines))
    await asyncio.wait({coming}, timeout=0.1)
    assert not coming.done()

    left = MAX_BACKLOG_BYTES + 2
    async with asyncio.timeout(WAIT_S):
        while left:
            left -= len(await asyncio.to_thread(os.read, pipes.to_client, 1 << 20))
        assert await coming == b"two"
