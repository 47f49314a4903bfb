"""``tools/list`` and ``tools/call`` (Tools)."""

from collections.abc import Callable

from app.execution.execution import Execution, Outcome
from app.execution.executor import Executor, log_failure, message_of, new_error_id
from app.execution.results import ResultEncoder
from app.methods.answers import Reply
from app.principal import Principal
from app.protocol.errors import InvalidParams
from app.protocol.headers import HeaderMap, check_parameters, mirrored_headers
from app.protocol.inbound import Call
from app.registry.catalog import Catalog
from app.registry.tool import InvalidArguments
from app.toolkit import ToolError

MAX_NAME = 128


class ListTools:
    """Serves the pages of the current snapshot.

    Args:
        catalog: Gives the current snapshot.
    """

    def __init__(self, catalog: Callable[[], Catalog]) -> None:
        self._catalog = catalog

    def __call__(self, call: Call, principal: Principal, headers: HeaderMap | None) -> Reply:
        cursor = call.params.get("cursor")
        if cursor is not None and not isinstance(cursor, str):
            raise InvalidParams("params.cursor must be a string from an earlier page.")
        return Reply(self._catalog().listing.page(cursor))


class CallTool:
    """Starts a call of one tool of the current snapshot.

    Everything that is refused with an HTTP error is refused here, before anything streams.
    """

    def __init__(
        self, catalog: Callable[[], Catalog], executor: Executor, encoder: ResultEncoder
    ) -> None:
        self._catalog = catalog
        self._executor = executor
        self._encoder = encoder

    def __call__(
        self, call: Call, principal: Principal, headers: HeaderMap | None
    ) -> Reply | Execution:
        name = call.params.get("name")
        if not isinstance(name, str):
            raise InvalidParams("params.name must be the name of a tool, as a string.")
        arguments = call.params.get("arguments")
        if arguments is None:  # ours: null is as good as absent
            arguments = {}
        elif not isinstance(arguments, dict):
            raise InvalidParams("params.arguments must be an object.")
        tool = self._catalog().tools.get(name)
        if tool is None:
            raise InvalidParams(f"Unknown tool: {name[:MAX_NAME]}")
        if headers is not None and tool.mirrored:
            check_parameters(tool.mirrored, headers, arguments)
        self._executor.admit()
        try:
            arguments, keywords = tool.prepare(arguments)
        except InvalidArguments as error:
            # Tools, "Error Handling": input validation is for the model to mend.
            reasons = "; ".join(error.reasons)
            text = f"Invalid arguments for {tool.name}: {reasons}"
            return Reply(self._encoder.error(text), outcome=Outcome.TOOL_ERROR)
        except ToolError as error:
            return Reply(self._encoder.error(message_of(error)), outcome=Outcome.TOOL_ERROR)
        except BaseException as error:  # noqa: BLE001  # validators and defaults are the author's code
            error_id = new_error_id()
            log_failure(tool, error, error_id)
            return Reply(self._encoder.internal_error(error_id), outcome=Outcome.INTERNAL_ERROR)
        mirrored = mirrored_headers(tool.mirrored, arguments) if tool.mirrored else ()
        execution = self._executor.start(tool, keywords, call, principal)
        execution.headers = mirrored
        return execution
