"""What a JSON Schema must be before a tool is served with it.

``jsonschema`` is the authority: it checks schemas here and writes the messages for bad values.
``jsonschema_rs`` decides validity on the path of a call. Neither may ever fetch anything.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NoReturn

import jsonschema
import jsonschema.validators
import jsonschema_rs
import referencing
from jsonschema.protocols import Validator

from app.protocol.jsonrpc import dumps
from app.protocol.jsonschema import subschemas
from app.registry.inline import definition_name

MAX_SCHEMA_DEPTH: Final = 64
"""Keys and indexes on the longest path."""

MAX_SUBSCHEMAS: Final = 5000
MAX_SCHEMA_BYTES: Final = 256 * 1024
DEFAULT_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

_DIALECTS: Final[Mapping[str, tuple[Any, Any]]] = {
    DEFAULT_DIALECT: (jsonschema.Draft202012Validator, jsonschema_rs.Draft202012Validator),
    "https://json-schema.org/draft/2019-09/schema": (
        jsonschema.Draft201909Validator,
        jsonschema_rs.Draft201909Validator,
    ),
    "http://json-schema.org/draft-07/schema": (
        jsonschema.Draft7Validator,
        jsonschema_rs.Draft7Validator,
    ),
    "http://json-schema.org/draft-06/schema": (
        jsonschema.Draft6Validator,
        jsonschema_rs.Draft6Validator,
    ),
    "http://json-schema.org/draft-04/schema": (
        jsonschema.Draft4Validator,
        jsonschema_rs.Draft4Validator,
    ),
}
DIALECTS: Final = tuple(_DIALECTS)
"""Dialects that both validators know, newest first."""

_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")


class SchemaError(ValueError):
    """A schema that is not served; the text says where and why."""


def check_schema(schema: Mapping[str, Any], *, what: str, root_object: bool) -> None:
    """Refuse what clients or validators could not or must not use.

    Args:
        what: ``inputSchema`` or ``outputSchema``, for the message.
        root_object: Whether the root must say ``"type": "object"`` (``Tool.inputSchema``).

    Raises:
        SchemaError: See Overview, "JSON Schema Usage".
    """
    if not isinstance(schema, Mapping):
        raise SchemaError(f"{what} must be a JSON object, not {type(schema).__name__}")
    if root_object and schema.get("type") != "object":
        raise SchemaError(f'{what} must have "type": "object" at its root')
    try:
        parts = list(subschemas(schema, MAX_SUBSCHEMAS))
    except ValueError as error:
        raise SchemaError(f"{what} has {error}") from None
    for node, path in parts:
        if len(path) > MAX_SCHEMA_DEPTH:
            raise SchemaError(f"{what} is nested deeper than {MAX_SCHEMA_DEPTH} levels")
        _refuse_remote(node, what)
    if len(dumps(schema)) > MAX_SCHEMA_BYTES:
        raise SchemaError(f"{what} is larger than {MAX_SCHEMA_BYTES} bytes")
    reference, _ = _dialect(schema, what)
    try:
        reference.check_schema(schema)
    except jsonschema.SchemaError as error:
        where = "/".join(str(step) for step in error.absolute_path) or "the root"
        raise SchemaError(f"{what} is not a valid schema: at {where}: {error.message}") from None
    _resolve_references(schema, what)


def _refuse_remote(node: Mapping[str, Any], what: str) -> None:
    for key in _REFERENCES:
        target = node.get(key)
        if isinstance(target, str) and not target.startswith("#"):
            raise SchemaError(
                f"{what} has {key} {target!r}: references must stay inside the schema (begin "
                'with "#"); nothing is fetched from the network or from files'
            )


def _dialect(schema: Mapping[str, Any], what: str) -> tuple[Any, Any]:
    dialect = schema.get("$schema", DEFAULT_DIALECT)
    try:
        return _DIALECTS[dialect.rstrip("#")]
    except (KeyError, AttributeError):
        raise SchemaError(
            f"{what} names the dialect {dialect!r}; supported are {', '.join(DIALECTS)}"
        ) from None


def _resolve_references(schema: Mapping[str, Any], what: str) -> None:
    try:
        compile_validator(schema, what=what)
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise SchemaError(f"{what} cannot be compiled: {reason}") from None


def compile_validator(
    schema: Mapping[str, Any], *, what: str
) -> jsonschema_rs.Draft202012Validator:
    """The validator for the path of a call: ``is_valid`` in a fraction of a microsecond."""
    _, fast = _dialect(schema, what)
    validator: jsonschema_rs.Draft202012Validator = fast(dict(schema), retriever=_refuse_to_fetch)
    return validator


def compile_explainer(schema: Mapping[str, Any], *, what: str) -> Validator:
    """The validator that names what is wrong, for values that were found invalid."""
    reference, _ = _dialect(schema, what)
    extend: Any = jsonschema.validators.extend
    reference = extend(reference, {"uniqueItems": _unique_items})
    # An empty registry knows no other document, and this library fetches none by itself then.
    explainer: Validator = reference(schema, registry=referencing.Registry())
    return explainer


_UNIQUE: Final = jsonschema_rs.Draft202012Validator({"uniqueItems": True})


def _unique_items(_: Any, wanted: bool, instance: Any, __: Any) -> Iterator[Any]:
    """``uniqueItems`` by the fast validator: this library's own compares each item with each."""
    if wanted and isinstance(instance, list) and not _UNIQUE.is_valid(instance):
        yield jsonschema.ValidationError("has equal items")


def _refuse_to_fetch(uri: str) -> NoReturn:
    raise ValueError(f"{uri} is not fetched: references must stay inside the schema")


def allows_strings(
    schema: Any, root: Mapping[str, Any], _seen: frozenset[str] = frozenset()
) -> bool:
    """Whether some string could satisfy this part of a schema. In doubt, yes."""
    if not isinstance(schema, Mapping):
        return schema is not False
    kinds = schema.get("type", "string")
    values = [*schema.get("enum", ["any"]), schema.get("const", "any")]
    if "string" not in ([kinds] if isinstance(kinds, str) else kinds):
        return False
    if not isinstance(values[-1], str) or not any(isinstance(item, str) for item in values[:-1]):
        return False
    name = definition_name(schema)
    if name is not None and name not in _seen:
        target = root.get("$defs", {}).get(name, True)
        if not allows_strings(target, root, _seen | {name}):
            return False
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema and not any(
            allows_strings(part, root, _seen) for part in schema[keyword]
        ):
            return False
    return all(allows_strings(part, root, _seen) for part in schema.get("allOf", ()))
