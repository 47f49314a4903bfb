"""Business rules: ``@tool(validate=...)`` looks at the arguments before the function runs."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from app.registry.signature import SignatureError
from app.toolkit import ToolError


def validated(
    function: Callable[..., Any], validate: Callable[..., Any] | None
) -> Callable[..., Any]:
    """The function, after its validator has had nothing against the arguments.

    The validator runs where the function runs, under the same deadline. It gets the parameters
    that it names, the call's context among them.

    Raises:
        SignatureError: The validator cannot be called with what the function takes.
    """
    if validate is None:
        return function
    names = _taken(function, validate)
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def checked_first(**arguments: Any) -> Any:
            try:
                outcome = validate(**_pick(arguments, names))
                if inspect.isawaitable(outcome):
                    await outcome
            except ValueError as error:
                raise ToolError(str(error)) from None
            return await function(**arguments)

        return checked_first
    if inspect.iscoroutinefunction(validate):
        raise SignatureError("validate is async and the tool is not; make both async, or neither")

    @functools.wraps(function)
    def checked_first_in_thread(**arguments: Any) -> Any:
        try:
            validate(**_pick(arguments, names))
        except ValueError as error:
            raise ToolError(str(error)) from None
        return function(**arguments)

    return checked_first_in_thread


def _taken(function: Callable[..., Any], validate: Callable[..., Any]) -> frozenset[str] | None:
    """Names of the parameters that the validator takes; None: all."""
    if not callable(validate):
        raise SignatureError("validate must be a function")
    offered = inspect.signature(function).parameters
    names = set()
    for name, parameter in inspect.signature(validate).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            return None
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
            raise SignatureError(f"validate must take {name!r} by name")
        takes_any = any(each.kind is each.VAR_KEYWORD for each in offered.values())
        if name not in offered and not takes_any and parameter.default is parameter.empty:
            raise SignatureError(f"validate takes {name!r}, which the tool does not have")
        names.add(name)
    return frozenset(names)


def _pick(arguments: dict[str, Any], names: frozenset[str] | None) -> dict[str, Any]:
    if names is None:
        return arguments
    return {name: value for name, value in arguments.items() if name in names}
