"""How calls end: a value or an error becomes the result that the caller gets."""

import secrets
from collections.abc import Callable
from typing import Any

import structlog

from app.execution.asking import Asking, SwallowedPause, is_pause
from app.execution.execution import Ending, Execution, Outcome
from app.execution.failures import passing_s, tool_error
from app.execution.results import USUAL_TYPES, BadResult, ResultEncoder
from app.registry.tool import Tool
from app.toolkit import ToolError

log = structlog.get_logger()


class RemoteError(Exception):
    """What a tool raised in another process.

    Attributes:
        kind: Name of its class.
        trace: The traceback as text.
    """

    def __init__(self, kind: str, trace: str) -> None:
        super().__init__(kind)
        self.kind = kind
        self.trace = trace


class Endings:
    """Ends calls, and counts those whose code has not ended.

    Args:
        end: Told when a tool's code has really ended.

    Attributes:
        running: Calls whose code has not ended.
        waited_for: Calls whose caller still waits.
    """

    def __init__(self, encoder: ResultEncoder, end: Callable[[Tool], None]) -> None:
        self.encoder = encoder
        self._end = end
        self._running_of: dict[str, int] = {}
        self.running = 0
        self.waited_for: set[Execution] = set()

    def running_of(self, tool: Tool) -> int:
        """How many calls run of a tool that limits them, or of a version of it before this one.

        By name: a version that was replaced uses the same things in the background.
        """
        return self._running_of.get(tool.name, 0)

    def began(self, execution: Execution) -> None:
        """A call is about to be started."""
        self._count(execution.tool, 1)
        self.waited_for.add(execution)

    def ended(self, tool: Tool) -> None:
        """The code of a call has ended, however that was."""
        self._count(tool, -1)
        self._end(tool)

    def paused(self, tool: Tool) -> None:
        """The code of a call waits for a person: it takes no room."""
        self._count(tool, -1)

    def resumed(self, tool: Tool) -> None:
        """It goes on, whether there is room or not."""
        self._count(tool, 1)

    def _count(self, tool: Tool, one: int) -> None:
        self.running += one
        if tool.max_concurrent is not None:
            self._running_of[tool.name] = self._running_of.get(tool.name, 0) + one
            if not self._running_of[tool.name]:
                del self._running_of[tool.name]

    def refused(self, execution: Execution) -> None:
        """A call could not be started after all."""
        self.waited_for.discard(execution)
        self.ended(execution.tool)

    def succeed(self, execution: Execution, value: Any) -> None:
        """A tool has returned."""
        if execution.ended_with is not None or execution.cancelled:
            return
        if execution.asking is not None and execution.asking.is_paused:
            self.report(execution, SwallowedPause(), public=SwallowedPause.public)
            return
        encoder, tool, is_draft = self.encoder, execution.tool, execution.is_draft
        is_error = False
        try:
            result = None if is_draft else encoder.usual(tool, value)
            if result is not None:
                execution.content_types = USUAL_TYPES
            else:
                encode = encoder.draft if is_draft else encoder.encode
                result, is_error = encode(tool, value)
        except BadResult as bad:
            self.report(execution, bad, public=bad.public)
        except BaseException as error:  # noqa: BLE001  # methods of the tool's objects run here
            self.report(execution, error)
        else:
            outcome = Outcome.TOOL_ERROR if is_error else Outcome.OK
            self.finish(execution, result, outcome, is_draft=is_draft)

    def fail(self, execution: Execution, error: BaseException) -> None:
        """A tool has raised."""
        if execution.ended_with is not None or execution.cancelled:
            self.waited_for.discard(execution)
            return
        asking = execution.asking
        if asking is not None and asking.is_paused and is_pause(error):
            self._ask(execution, asking)
        elif isinstance(error, ToolError):
            self.finish(
                execution,
                tool_error(self.encoder, error, is_draft=execution.is_draft),
                Outcome.TOOL_ERROR,
                is_draft=execution.is_draft,
                passing_s=passing_s(error),
            )
            if error.__cause__ is not None:
                # `raise ToolError(...) from error`: the model gets the sentence, the log the cause.
                log.warning("tool_error", tool=execution.tool.name, exc_info=error)
        else:
            self.report(execution, error, passing_s=passing_s(error))

    def _ask(self, execution: Execution, asking: Asking) -> None:
        """The tool has left for want of answers: its call ends with the questions."""
        try:
            requests, state = asking.result()
            result = self.encoder.input_required(requests, state)
        except ToolError as error:
            self.finish(execution, self.encoder.error(str(error)), Outcome.TOOL_ERROR)
        except BadResult as bad:
            self.report(execution, bad, public=bad.public)
        else:
            self.finish(execution, result, Outcome.INPUT_REQUIRED)

    def finish(
        self,
        execution: Execution,
        result: bytes,
        outcome: str,
        *,
        is_draft: bool = False,
        passing_s: float | None = None,
        error_id: str | None = None,
    ) -> None:
        """A tool's code has come to an end, and this is what it led to.

        Args:
            is_draft: Whether it is for the hooks.
            passing_s: It failed for a reason that may have passed after so many seconds.
            error_id: What a generic error tells the caller.
        """
        if execution.run_ended is not None:
            if execution.run_span is not None:
                execution.run_span.end(outcome)
            execution.run_ended(Ending(result, outcome, is_draft, passing_s, error_id))
        else:
            self.waited_for.discard(execution)
            execution.error_id = error_id
            execution.finish(result, outcome)

    def report(
        self,
        execution: Execution,
        error: BaseException,
        *,
        public: str | None = None,
        passing_s: float | None = None,
    ) -> None:
        """The caller is told an id, the log everything."""
        error_id = new_error_id()
        self.end_without_details(execution, error_id, public, passing_s=passing_s)
        log_failure(execution.tool, error, error_id)

    def end_without_details(
        self,
        execution: Execution,
        error_id: str,
        public: str | None = None,
        *,
        passing_s: float | None = None,
    ) -> None:
        """The caller is told an id, and a sentence where one may be told."""
        result = self.encoder.internal_error(error_id, public)
        self.finish(
            execution, result, Outcome.INTERNAL_ERROR, passing_s=passing_s, error_id=error_id
        )

    def time_out(self, execution: Execution) -> None:
        """The deadline has passed."""
        text = f"The tool did not finish within its deadline of {execution.timeout_s:g} s."
        execution.finish(self.encoder.error(text), Outcome.TIMEOUT)


def new_error_id() -> str:
    """What ties the answer of a caller to the line in the log."""
    return secrets.token_hex(8)


def log_failure(tool: Tool, error: BaseException, error_id: str) -> None:
    """The caller gets an id, the log the details: never an exception's text on the wire."""
    if isinstance(error, RemoteError):
        kind, details = error.kind, {"exception": error.trace}
    else:
        # mypy takes the type of details from the other branch.
        kind, details = type(error).__name__, {"exc_info": error}  # type: ignore[dict-item]
    log.error("tool_failed", tool=tool.name, error_id=error_id, error=kind, **details)
