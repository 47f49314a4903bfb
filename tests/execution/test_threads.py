"""The pool of worker threads."""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Any

import pytest

from app.execution.threads import QUEUE_PER_THREAD, ThreadWorkers
from app.protocol.errors import Unavailable


async def _run(pool: ThreadWorkers, work: Callable[[], Any]) -> Any:
    done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def report(result: Any, error: BaseException | None) -> None:
        if error is None:
            done.set_result(result)
        else:
            done.set_exception(RuntimeError(repr(error)))

    pool.submit(work, report)
    return await asyncio.wait_for(done, 10)


def _ignore(result: Any, error: BaseException | None) -> None: ...


async def test_a_result_comes_back_to_the_loop() -> None:
    pool = ThreadWorkers(threads=2, max_abandoned=2)
    assert await _run(pool, lambda: threading.current_thread().name) == "tool"
    assert (pool.running, pool.abandoned) == (0, 0)
    pool.stop()


async def test_a_tool_that_wants_to_exit_does_not_end_its_worker() -> None:
    def leave() -> None:
        raise SystemExit(3)

    pool = ThreadWorkers(threads=1, max_abandoned=1)
    with pytest.raises(RuntimeError, match="SystemExit"):
        await _run(pool, leave)
    assert await _run(pool, lambda: 5) == 5
    pool.stop()


async def test_context_variables_reach_the_thread() -> None:
    variable = contextvars.ContextVar("variable", default="none")
    pool = ThreadWorkers(threads=1, max_abandoned=1)
    variable.set("caller")
    assert await _run(pool, variable.get) == "caller"
    pool.stop()


async def test_an_abandoned_thread_gives_its_slot_to_the_next_call() -> None:
    pool = ThreadWorkers(threads=1, max_abandoned=2)
    release = threading.Event()
    ended = asyncio.Event()
    call = pool.submit(release.wait, lambda *_: ended.set())
    assert pool.abandon(call)
    assert (pool.running, pool.abandoned) == (0, 1)
    assert await _run(pool, lambda: "quick") == "quick"
    release.set()
    await asyncio.wait_for(ended.wait(), 10)
    assert pool.abandoned == 0
    pool.stop()


async def test_what_waits_runs_when_a_thread_is_free_and_too_much_is_refused() -> None:
    pool = ThreadWorkers(threads=1, max_abandoned=1)
    release = threading.Event()
    pool.submit(release.wait, _ignore)
    order: list[int] = []
    waiting = [
        pool.submit(lambda n=n: order.append(n), _ignore)  # type: ignore[misc]
        for n in range(QUEUE_PER_THREAD)
    ]
    with pytest.raises(Unavailable):
        pool.submit(release.wait, _ignore)
    assert not pool.abandon(waiting[0]), "it never ran"
    release.set()
    await _run(pool, lambda: None)
    assert order == list(range(1, QUEUE_PER_THREAD))
    pool.stop()


async def test_too_many_abandoned_threads_refuse_further_calls() -> None:
    pool = ThreadWorkers(threads=5, max_abandoned=1)
    release = threading.Event()
    ended = asyncio.Event()
    pool.abandon(pool.submit(release.wait, lambda *_: ended.set()))
    with pytest.raises(Unavailable):
        pool.submit(release.wait, _ignore)
    release.set()
    await asyncio.wait_for(ended.wait(), 10)
    assert await _run(pool, lambda: 1) == 1
    pool.stop()
