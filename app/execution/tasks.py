"""Asynchronous tools: a task in the event loop for each call."""

import asyncio
from typing import Any, Final

import structlog

from app.execution.endings import Endings
from app.execution.execution import Execution
from app.principal import Principal
from app.protocol.inbound import Call

STRAGGLER_GRACE_S: Final = 1.0
"""A tool that still runs this long after it was cancelled or left is logged."""

log = structlog.get_logger()


class Tasks:
    """Carries calls in tasks.

    A task is cancelled when nobody waits for it. If it will not stop, it is left behind and
    counted.
    """

    def __init__(self, endings: Endings) -> None:
        self._loop = asyncio.get_running_loop()
        self._endings = endings
        self._left: set[asyncio.Task[None]] = set()
        self.stragglers = 0

    def start(
        self,
        execution: Execution,
        keywords: dict[str, Any],
        call: Call,  # noqa: ARG002  # of every carrier
        principal: Principal,  # noqa: ARG002  # likewise
    ) -> None:
        # Not eagerly, where Python can: many calls in the same stage of their way are faster
        # than each of them from start to end (caches), by a fifth in a busy server.
        execution.work = self._loop.create_task(self._run(keywords, execution))

    async def _run(self, keywords: dict[str, Any], execution: Execution) -> None:
        """The task of a call; the watchdog knows it by this code and its ``execution``."""
        execution.is_started = True
        if execution.run_span is not None:
            execution.run_span.enter()
        try:
            value = await execution.tool.function(**keywords)
        except BaseException as error:  # noqa: BLE001  # a tool may raise anything, SystemExit too
            # CancelledError as well: nobody waits any more, or the tool cancelled itself.
            self._endings.fail(execution, error)
        else:
            self._endings.succeed(execution, value)
        finally:
            self._endings.ended(execution.tool)

    def leave(self, execution: Execution) -> bool:
        task = execution.work
        task.cancel()
        if not execution.is_started:
            self._endings.ended(execution.tool)  # it never ran
            return False
        self._left.add(task)
        task.add_done_callback(self._left.discard)
        return True

    def look_after(self, execution: Execution) -> None:
        if not execution.work.done():
            self.stragglers += 1
            log.warning(
                "tool_ignores_cancellation",
                tool=execution.tool.name,
                stragglers=self.stragglers,
            )
            execution.work.add_done_callback(self._straggler_ended)

    def _straggler_ended(self, _: asyncio.Task[None]) -> None:
        self.stragglers -= 1

    async def stop(self) -> None:
        if self._left:
            await asyncio.wait(self._left, timeout=STRAGGLER_GRACE_S)
