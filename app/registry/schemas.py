"""What a JSON Schema must be before a tool is served with it.

``jsonschema`` is the authority: it checks schemas here and writes the messages for bad values.
``jsonschema_rs`` decides validity on the path of a call. Neither may ever fetch anything.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NoReturn

import jsonschema
import jsonschema_rs
import referencing
from jsonschema.protocols import Validator

from app.protocol.jsonrpc import dumps

MAX_SCHEMA_DEPTH: Final = 64
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
_DATA: Final = frozenset({"const", "enum", "default", "examples"})


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
    for count, (node, depth) in enumerate(_nodes(schema)):
        if depth > MAX_SCHEMA_DEPTH:
            raise SchemaError(f"{what} is nested deeper than {MAX_SCHEMA_DEPTH} levels")
        if count > MAX_SUBSCHEMAS:
            raise SchemaError(f"{what} has more than {MAX_SUBSCHEMAS} parts")
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


def _nodes(schema: Any) -> Iterator[tuple[Mapping[str, Any], int]]:
    stack: list[tuple[Any, int]] = [(schema, 0)]
    while stack:
        node, depth = stack.pop()
        if isinstance(node, Mapping):
            yield node, depth
            stack.extend((child, depth + 1) for key, child in node.items() if key not in _DATA)
        elif isinstance(node, list):
            stack.extend((child, depth + 1) for child in node)
        if len(stack) > MAX_SUBSCHEMAS * 4:
            raise SchemaError(f"a schema has more than {MAX_SUBSCHEMAS} parts")


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
        raise SchemaError(f"{what} cannot be compiled: {error}") from None


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
    # An empty registry knows no other document, and this library fetches none by itself then.
    explainer: Validator = reference(schema, registry=referencing.Registry())
    return explainer


def _refuse_to_fetch(uri: str) -> NoReturn:
    raise ValueError(f"{uri} is not fetched: references must stay inside the schema")


def inline_references(schema: dict[str, Any]) -> dict[str, Any]:
    """Put definitions where they are used; many hosts do not follow ``$ref``.

    Recursive definitions stay behind a local ``$ref``.
    """
    definitions: Mapping[str, Any] = schema.get("$defs", {})
    recursive = {name for name in definitions if _reaches_itself(name, definitions)}
    kept: dict[str, Any] = {}

    def resolve(node: Any) -> Any:
        if isinstance(node, list):
            return [resolve(item) for item in node]
        if not isinstance(node, dict):
            return node
        name = _definition_name(node)
        if name is None or name not in definitions:
            return {
                key: child if key in _DATA else resolve(child)
                for key, child in node.items()
                if key != "$defs"
            }
        siblings = {key: child for key, child in node.items() if key != "$ref"}
        if name in recursive:
            keep(name)
            return {"$ref": f"#/$defs/{name}", **resolve(siblings)}
        return {**resolve(definitions[name]), **resolve(siblings)}

    def keep(name: str) -> None:
        if name not in kept:
            kept[name] = None  # marks it as under way
            kept[name] = resolve(definitions[name])

    out: dict[str, Any] = resolve(schema)
    if kept:
        out["$defs"] = {name: kept[name] for name in sorted(kept)}
    return out


def _definition_name(node: Mapping[str, Any]) -> str | None:
    target = node.get("$ref")
    if isinstance(target, str) and target.startswith("#/$defs/"):
        return target.removeprefix("#/$defs/").replace("~1", "/").replace("~0", "~")
    return None


def _reaches_itself(name: str, definitions: Mapping[str, Any]) -> bool:
    seen: set[str] = set()
    stack = [definitions[name]]
    while stack:
        for node, _ in _nodes(stack.pop()):
            target = _definition_name(node)
            if target == name:
                return True
            if target is not None and target in definitions and target not in seen:
                seen.add(target)
                stack.append(definitions[target])
    return False


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
    name = _definition_name(schema)
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
