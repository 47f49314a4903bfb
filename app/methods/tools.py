"""``tools/list`` and ``tools/call`` (Tools)."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from app.auth.challenge import Challenge
from app.execution.endings import log_failure, new_error_id
from app.execution.execution import Execution, Outcome
from app.execution.executor import Executor
from app.execution.results import ResultEncoder, message_of
from app.methods.answers import Caller, Reply
from app.policy.decision import Demand
from app.principal import Principal
from app.protocol.errors import Forbidden, InvalidParams, ProtocolError
from app.protocol.headers import check_parameters, mirrored_headers
from app.protocol.inbound import Call
from app.registry.catalog import Catalog
from app.registry.tool import InvalidArguments, Tool
from app.registry.views import Offer
from app.toolkit import ToolError

MAX_NAME: Final = 128
TIMEOUT_KEY: Final = "mcp-tool-server/timeoutMs"


class ListTools:
    """Serves the pages of what the caller may see in the current snapshot.

    Args:
        catalog: Gives the current snapshot.
        clock: Gives POSIX time.
    """

    def __init__(self, catalog: Callable[[], Catalog], clock: Callable[[], float]) -> None:
        self._catalog = catalog
        self._clock = clock

    def __call__(self, call: Call, caller: Caller) -> Reply:
        cursor = call.params.get("cursor")
        if cursor is not None and not isinstance(cursor, str):
            raise InvalidParams("params.cursor must be a string from an earlier page.")
        catalog, now = self._catalog(), self._clock()
        view = catalog.view(caller.principal.grants, now)
        return Reply(view.page(cursor, valid_s=catalog.next_edge - now))


class CallTool:
    """Starts a call of one tool of the current snapshot.

    Everything that is refused with an HTTP error is refused here, before anything streams.

    Args:
        clock: Gives POSIX time.
        challenge: Writes the refusal of a caller who lacks something.
    """

    def __init__(
        self,
        catalog: Callable[[], Catalog],
        executor: Executor,
        encoder: ResultEncoder,
        *,
        clock: Callable[[], float],
        challenge: Challenge,
    ) -> None:
        self._catalog = catalog
        self._executor = executor
        self._encoder = encoder
        self._clock = clock
        self._challenge = challenge

    def __call__(self, call: Call, caller: Caller) -> Reply | Execution:
        name = call.params.get("name")
        if not isinstance(name, str):
            raise InvalidParams("params.name must be the name of a tool, as a string.")
        arguments = call.params.get("arguments")
        if arguments is None:  # ours: null is as good as absent
            arguments = {}
        elif not isinstance(arguments, dict):
            raise InvalidParams("params.arguments must be an object.")
        principal = caller.principal
        catalog = self._catalog()
        offer = catalog.view(principal.grants, self._clock()).offers.get(name)
        if offer is None:
            # A tool that this caller may not see is as unknown as one that does not exist.
            raise InvalidParams(f"Unknown tool: {name[:MAX_NAME]}")
        tool, demand, decision = offer
        if not decision.callable:
            raise self._refusal(catalog, offer, principal)
        if demand.networks and demand.refuses_address(caller.address):
            raise Forbidden("This tool may not be called from your network address.")
        if caller.headers is not None and tool.mirrored:
            check_parameters(tool.mirrored, caller.headers, arguments)
        return self._start(offer, arguments, call, principal)

    def _start(
        self, offer: Offer, arguments: dict[str, Any], call: Call, principal: Principal
    ) -> Reply | Execution:
        """Start what may be called, or answer what is wrong with its arguments."""
        tool = offer.tool
        timeout_s = _timeout_s(call, tool)
        self._executor.admit()
        prepared = self._prepare(tool, offer.demand, arguments)
        if isinstance(prepared, Reply):
            return prepared
        effective, keywords = prepared
        mirrored = mirrored_headers(tool.mirrored, effective) if tool.mirrored else ()
        execution = self._executor.start(tool, keywords, call, principal, timeout_s)
        execution.headers = mirrored
        return execution

    def _refusal(self, catalog: Catalog, offer: Offer, principal: Principal) -> ProtocolError:
        scopes = offer.decision.scopes
        if principal.issuer is None:
            message = "This tool is for callers who are known: send a credential."
            return self._challenge.unauthorized(message, scopes=scopes)
        if catalog.lacks_scopes(principal.grants, scopes):
            return self._challenge.insufficient_scope(scopes)
        return Forbidden("This caller may not use this tool at this time.")

    def _prepare(
        self, tool: Tool, demand: Demand, arguments: dict[str, Any]
    ) -> tuple[Mapping[str, Any], dict[str, Any]] | Reply:
        """The arguments that count and the function's own, or what is wrong with them."""
        try:
            arguments, keywords = tool.prepare(arguments)
            if demand.arguments:
                _check_rules(demand, tool, arguments)
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
        return arguments, keywords


def _timeout_s(call: Call, tool: Tool) -> float:
    """The tool's deadline, or an earlier one that the client asks for.

    Raises:
        InvalidParams: What it asks for is no positive integer.
    """
    if TIMEOUT_KEY not in call.meta.raw:
        return tool.timeout_s
    asked = call.meta.raw[TIMEOUT_KEY]
    if type(asked) is not int or asked <= 0:
        raise InvalidParams(f'_meta["{TIMEOUT_KEY}"] must be a positive integer, in milliseconds.')
    return tool.timeout_s if asked >= tool.timeout_s * 1000 else asked / 1000


def _check_rules(demand: Demand, tool: Tool, arguments: Mapping[str, Any]) -> None:
    # With the defaults: what is left out is an argument too.
    problems = demand.argument_problems({**tool.defaults, **arguments})
    if problems:
        raise InvalidArguments(problems)
