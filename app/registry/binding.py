"""From arguments that satisfy their schema to the keyword arguments of a function."""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from pydantic import BaseModel

from app.protocol.jsonrpc import dumps

Bind = Callable[[dict[str, Any]], dict[str, Any]]
"""Arguments object -> keyword arguments. Raises ``pydantic.ValidationError`` where a type demands
more than its schema says."""


def bind_by_model(model: type[BaseModel], fields: tuple[tuple[str, str], ...]) -> Bind:
    """Binds by a model whose fields carry the names of the parameters as aliases.

    Args:
        fields: Parameter and field, pair by pair.
    """
    core: Any = model.__pydantic_core_schema__
    inner = core.get("schema", {}) if core.get("type") == "model" else {}
    scalars = _scalars(inner.get("fields", {}), dict(fields))
    if scalars is not None:
        return _bind_scalars(scalars)
    validate = model.__pydantic_validator__.validate_json

    def bind(arguments: dict[str, Any]) -> dict[str, Any]:
        # JSON mode, so that dates, bytes, sets and strict types mean what JSON says.
        values = validate(dumps(arguments)).__dict__
        return {name: values[field] for name, field in fields}

    return bind


class _Scalar(NamedTuple):
    name: str
    alias: str
    kind: type
    default: Any


_SCALARS: Final = {"int": int, "float": float, "str": str, "bool": bool}
_CHANGES: Final = ("strict", "strip_whitespace", "to_lower", "to_upper", "metadata")


def _scalars(fields: Mapping[str, Any], names: Mapping[str, str]) -> tuple[_Scalar, ...] | None:
    """The parameters, if their schema says all about each: plain numbers, texts and truths."""
    found = []
    for name, field in names.items():
        node = fields.get(field, {})
        alias, schema, default = node.get("validation_alias"), node.get("schema", {}), _REQUIRED
        if schema.get("type") == "default" and type(schema.get("default")) in _SCALARS.values():
            schema, default = schema["schema"], schema["default"]
        kind = _SCALARS.get(schema.get("type"))
        if schema.get("type") == "literal" and all(type(x) is str for x in schema["expected"]):
            kind = str
        # Metadata may replace the schema that clients were told, which then does not say all.
        if kind is None or not isinstance(alias, str) or any(map(schema.get, _CHANGES)):
            return None
        found.append(_Scalar(name, alias, kind, default))
    return tuple(found)


def _bind_scalars(scalars: tuple[_Scalar, ...]) -> Bind:
    def bind(arguments: dict[str, Any]) -> dict[str, Any]:
        # The schema has been checked; only 1 for a float and 1.0 for an int are left to convert.
        keywords = {}
        for name, alias, kind, default in scalars:
            value = arguments.get(alias, default)
            keywords[name] = value if type(value) is kind else kind(value)
        return keywords

    return bind


_REQUIRED: Final = object()


def bind_as_is(names: frozenset[str] | None) -> Bind:
    """Hands arguments on unconverted.

    Args:
        names: Those that the function takes; None for all of them.
    """

    def bind(arguments: dict[str, Any]) -> dict[str, Any]:
        if names is None:
            return dict(arguments)
        return {name: value for name, value in arguments.items() if name in names}

    return bind
