"""JSON Schemas of tools as older revisions can have them: objects, whose properties are objects."""

import hashlib
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from app.protocol.jsonrpc import canonical
from app.protocol.jsonschema import DATA, NAME_MAPS, subschemas

WRAPPED: Final = "result"
"""The property that holds what is no object."""

_POINTER: Final = f"#/properties/{WRAPPED}"
_HOISTED: Final = ("$defs", "definitions")
_REFERENCES: Final = ("$ref", "$dynamicRef")
_NO_LIMIT: Final = 10**9  # the registry has refused what is too large
_DRAFT_04: Final = "http://json-schema.org/draft-04/"

Schema = Mapping[str, Any]


def input_schema(schema: Schema) -> dict[str, Any]:
    """``Tool.inputSchema``: nothing in it but what a client of any revision can read.

    ``x-mcp-header`` goes: there are no parameter headers before 2026-07-28, and validators in
    strict mode refuse a schema with a keyword that they do not know.
    """
    out = _without_headers(schema)
    return _with_object_properties(out)


def wraps(schema: Schema | None) -> bool:
    """Whether results of a tool with this ``outputSchema`` are listed under ``result``."""
    return schema is not None and schema.get("type") != "object"


def output_schema(schema: Schema) -> dict[str, Any]:
    """``Tool.outputSchema``, which says ``object`` at its root in these revisions."""
    return _wrapped(schema) if wraps(schema) else _with_object_properties(dict(schema))


def _without_headers(schema: Schema) -> dict[str, Any]:
    out = {key: value for key, value in schema.items() if key != "x-mcp-header"}
    properties = out.get("properties")
    if isinstance(properties, Mapping):  # the only way to a parameter that is mirrored
        out["properties"] = {
            name: _without_headers(value) if isinstance(value, Mapping) else value
            for name, value in properties.items()
        }
    return out


def _with_object_properties(schema: dict[str, Any]) -> dict[str, Any]:
    """``true`` and ``false`` as the objects that mean the same."""
    properties = schema.get("properties")
    if isinstance(properties, Mapping):
        schema["properties"] = {name: _as_object(value) for name, value in properties.items()}
    return schema


def _as_object(schema: Any) -> Any:
    if schema is True:
        return {}
    return {"not": {}} if schema is False else schema


def _wrapped(schema: Schema) -> dict[str, Any]:
    """The schema of an object whose ``result`` is as ``schema`` says.

    References stay what they were. Those into ``$defs`` need no change, as the definitions move to
    the new root, where simple clients look for them; other pointers get the way to the new place.
    Anchors belong to the whole document. A schema with an identifier of its own is a document
    inside the document: its references begin at itself.
    """
    inner = dict(schema)
    outer: dict[str, Any] = {}
    if "$schema" in inner:  # the dialect is the document's
        outer["$schema"] = inner.pop("$schema")
    outer["type"] = "object"
    identifier = "id" if schema.get("$schema", "").startswith(_DRAFT_04) else "$id"
    if _is_document(inner, identifier):
        result: Any = inner
    elif any("$recursiveRef" in node for node, _ in subschemas(schema, _NO_LIMIT)):
        # Of 2019-09: it has the form "#" alone, so what it points to must be a root.
        digest = hashlib.sha256(canonical(schema)).hexdigest()[:16]
        result = {"$id": f"urn:mcp-tool-server:{digest}", **inner}
    else:
        hoisted = {key: inner.pop(key) for key in _HOISTED if isinstance(inner.get(key), Mapping)}
        move = _Move(identifier, frozenset(hoisted))
        result = move.schema(inner)
        outer |= {
            key: {name: move.schema(value) for name, value in definitions.items()}
            for key, definitions in hoisted.items()
        }
    outer["properties"] = {WRAPPED: result}
    outer["required"] = [WRAPPED]
    return outer


def _is_document(schema: Schema, identifier: str) -> bool:
    """Whether a schema has an identifier; ``#name`` in it is an anchor (draft-06, draft-07)."""
    value = schema.get(identifier)
    return isinstance(value, str) and not value.startswith("#")


class _Move(NamedTuple):
    """Changes the pointers of a schema to what they are from the new root.

    Attributes:
        identifier: The keyword that makes a schema a document.
        hoisted: Keywords of definitions that move to the new root.
    """

    identifier: str
    hoisted: frozenset[str]

    def schema(self, node: Any) -> Any:
        """A schema, or a list of them."""
        if isinstance(node, list):
            return [self.schema(each) for each in node]
        if not isinstance(node, Mapping) or _is_document(node, self.identifier):
            return node
        out: dict[str, Any] = {}
        for key, value in node.items():
            if key in NAME_MAPS and isinstance(value, Mapping):
                out[key] = {name: self.schema(child) for name, child in value.items()}
            elif key in _REFERENCES and isinstance(value, str):
                out[key] = self._pointer(value)
            else:
                out[key] = value if key in DATA else self.schema(value)
        return out

    def _pointer(self, reference: str) -> str:
        if reference != "#" and not reference.startswith("#/"):
            return reference  # an anchor
        first = unquote(reference[2:].partition("/")[0])
        return reference if first in self.hoisted else _POINTER + reference[1:]
