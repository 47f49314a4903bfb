"""Synchronous tools: a worker thread for each call."""

from functools import partial
from typing import Any

import structlog

from app.execution.endings import Endings
from app.execution.execution import Execution
from app.execution.threads import ThreadWorkers
from app.principal import Principal
from app.protocol.inbound import Call

log = structlog.get_logger()


class Threads:
    """Carries calls in threads. One that nobody waits for is left behind and counted."""

    def __init__(self, endings: Endings, workers: ThreadWorkers) -> None:
        self._endings = endings
        self._workers = workers

    def start(
        self,
        execution: Execution,
        keywords: dict[str, Any],
        call: Call,  # noqa: ARG002  # of every carrier
        principal: Principal,  # noqa: ARG002  # likewise
    ) -> None:
        work, span = partial(execution.tool.function, **keywords), execution.run_span
        if span is not None:
            work = partial(span.carry, work)
        execution.work = self._workers.submit(work, partial(self._ended, execution))
        if span is not None and not execution.work.started:
            span.waits = True

    def _ended(self, execution: Execution, value: Any, error: BaseException | None) -> None:
        try:
            if error is None:
                self._endings.succeed(execution, value)
            else:
                self._endings.fail(execution, error)
        finally:
            self._endings.ended(execution.tool)

    def leave(self, execution: Execution) -> bool:
        if not self._workers.abandon(execution.work):
            self._endings.ended(execution.tool)  # it never ran
            return False
        return True

    def look_after(self, execution: Execution) -> None:
        if not execution.work.ended:
            log.warning(
                "thread_abandoned", tool=execution.tool.name, abandoned=self._workers.abandoned
            )

    async def stop(self) -> None:
        self._workers.stop()
