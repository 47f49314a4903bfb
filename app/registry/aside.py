"""Work beside the event loop that may never end: importing modules that others wrote."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Final, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

TIMEOUT_S: Final = 60.0


async def in_thread(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run a function in a daemon thread of its own.

    The pool of ``asyncio.to_thread`` would not do: a function that hangs would keep its place,
    and the process from ending.

    Raises:
        TimeoutError: It did not end within ``TIMEOUT_S`` and was left behind.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[R] = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)

    def run() -> None:
        result, error = None, None
        try:
            result = function(*args, **kwargs)
        except BaseException as raised:  # noqa: BLE001  # handed to whoever waits
            error = raised
        try:
            loop.call_soon_threadsafe(settle, result, error)
        except RuntimeError:
            return  # the loop has closed

    threading.Thread(target=run, name="load tools", daemon=True).start()
    try:
        return await asyncio.wait_for(done, TIMEOUT_S)
    except TimeoutError:
        raise TimeoutError(
            f"loading the tools has not ended after {TIMEOUT_S:g} s: importing one of the files "
            "does not come to an end"
        ) from None
