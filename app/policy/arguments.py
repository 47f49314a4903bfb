"""Rules about arguments: a JSON Schema for each, besides the tool's own.

``jsonschema_rs`` decides, and describes what is wrong without the value, which may be a secret or
a megabyte. Only the first fault of an argument is told: to find all of a long list takes seconds.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NoReturn

import jsonschema
import jsonschema_rs

from app.protocol.jsonschema import subschemas

MAX_SUBSCHEMAS: Final = 1000
MAX_TEXT: Final = 200
"""Characters of a name or a reason."""

KEYWORDS: Final = frozenset(jsonschema.Draft202012Validator.VALIDATORS) | {
    *("$schema", "$id", "$anchor", "$dynamicAnchor", "$defs", "definitions", "$comment"),
    *("then", "else", "minContains", "maxContains", "title", "description", "default"),
    *("examples", "deprecated", "readOnly", "writeOnly"),
}
"""What a rule may say. JSON Schema ignores other words, and with ``maximun`` the rule would too."""


_KINDS: Final[Mapping[str, Sequence[str]]] = {
    "number": (*("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),),
    "string": ("minLength", "maxLength", "pattern", "format"),
    "array": (*("items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains"),),
    "object": (
        *("properties", "patternProperties", "additionalProperties", "propertyNames"),
        *("required", "minProperties", "maxProperties"),
    ),
}
"""Words that say something about one kind of value, and nothing about all others."""


class ArgumentRules:
    """The argument rules of one rule. Equal rules compare equal.

    Args:
        schemas: By name of the argument. One that is not given is not checked.
        label: The rule, for sentences.

    Raises:
        ValueError: One of them is no JSON Schema; the text says which and why.
    """

    __slots__ = ("_checks", "_key", "label", "schemas")

    def __init__(self, schemas: Mapping[str, Mapping[str, Any]], label: str) -> None:
        self.schemas = schemas
        self.label = label
        self._checks = tuple((name, _compile(name, schema)) for name, schema in schemas.items())
        self._key = (label, json.dumps(schemas, sort_keys=True))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ArgumentRules) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def problems(self, arguments: Mapping[str, Any]) -> list[str]:
        """One sentence for each argument that a rule refuses; it never repeats the value."""
        found = []
        for name, check in self._checks:
            if name in arguments:
                try:
                    check.validate(arguments[name])
                except jsonschema_rs.ValidationError as error:
                    place = _place(name, error.instance_path)
                    found.append(f"{place}: {_bounded(error.message)}, says {self.label}")
        return found


def _compile(name: str, schema: Mapping[str, Any]) -> jsonschema_rs.Validator:
    what = f"the schema of the argument {name!r}"
    try:
        _refuse_unknown_words(schema)
        compiled = jsonschema_rs.validator_for(
            _with_kinds(schema),
            mask="the value",
            retriever=_refuse_to_fetch,
            # A format that is not checked would be a rule that does nothing.
            validate_formats=True,
            ignore_unknown_formats=False,
        )
    except jsonschema_rs.ValidationError as error:
        where = "/".join(str(step) for step in error.instance_path)
        reason = f"at {where}: {error.message}" if where else error.message
        raise ValueError(f"{what} is not valid: {_bounded(reason)}") from None
    except ValueError as error:  # no JSON, such as a date of TOML
        raise ValueError(f"{what} is not valid: {_bounded(str(error))}") from None
    return compiled


def _with_kinds(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema, closed to values of which its words say nothing.

    ``maximum`` alone lets every text pass, and null as well; who writes it means a number.
    """
    closed = dict(schema)
    kinds = [kind for kind, words in _KINDS.items() if any(word in schema for word in words)]
    if kinds and "type" not in schema:
        closed["type"] = kinds
    properties = schema.get("properties")
    if isinstance(properties, Mapping):
        closed["properties"] = {
            name: _with_kinds(each) if isinstance(each, Mapping) else each
            for name, each in properties.items()
        }
    if isinstance(schema.get("items"), Mapping):
        closed["items"] = _with_kinds(schema["items"])
    return closed


def _refuse_unknown_words(schema: Mapping[str, Any]) -> None:
    for node, _ in subschemas(schema, MAX_SUBSCHEMAS):
        for word in node:
            if word not in KEYWORDS:
                raise ValueError(f"{word!r} is no keyword of JSON Schema")


def _refuse_to_fetch(uri: str) -> NoReturn:
    raise ValueError(f"{uri} is not fetched")


def _place(name: str, path: Iterable[str | int]) -> str:
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return _bounded(name + "".join(steps))


def _bounded(text: str) -> str:
    short = text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "..."
    return short if short.isprintable() else ascii(short)
