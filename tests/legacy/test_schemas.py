"""Schemas that say ``object`` at their root, and mean what they meant before."""

from typing import Any

import jsonschema
import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.legacy.schemas import input_schema, output_schema, wraps
from app.registry.schemas import check_schema
from tests.support.cases import rows

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a", "deep"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "next", "result", "$ref"]), inner, max_size=3)
    ),
    max_leaves=6,
)
NODE = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}
DRAFT = "http://json-schema.org/draft-0{}/schema#"

SCHEMAS: dict[str, dict[str, Any]] = {
    "a whole number": {"type": "integer"},
    "anything": {},
    "a list": {"type": "array", "items": {"type": "integer"}},
    "an object or null": {"anyOf": [{"type": "object"}, {"type": "null"}]},
    "definitions": {"$ref": "#/$defs/node", "$defs": {"node": NODE}},
    "a list of definitions": {
        "type": "array",
        "items": {"$ref": "#/$defs/node"},
        "$defs": {"node": NODE},
    },
    "the root itself": {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"$ref": "#"}}]},
    "the root with a slash": {
        "properties": {"next": {"$ref": "#/anyOf/1"}},
        "anyOf": [{"type": "object"}, {"type": "integer"}],
    },
    "the root from a definition": {
        "$ref": "#/$defs/list",
        "$defs": {"list": {"type": "array", "items": {"$ref": "#/anyOf/0"}}},
        "anyOf": [{"type": "array"}],
    },
    "a pointer that is encoded": {
        "$ref": "#/%24defs/an~1odd%20name",
        "$defs": {"an/odd name": {"type": "boolean"}},
    },
    "an anchor": {
        "anyOf": [{"$ref": "#word"}, {"type": "null"}],
        "$defs": {"w": {"$anchor": "word", "type": "string"}},
    },
    "a dynamic anchor": {
        "$dynamicAnchor": "node",
        "type": ["array", "null"],
        "items": {"$dynamicRef": "#node"},
    },
    "a dynamic pointer": {
        "type": "array",
        "items": {"$dynamicRef": "#/$defs/n"},
        "$defs": {"n": {"type": "null"}},
    },
    "an identifier": {
        "$id": "https://example.com/s",
        "type": ["array", "null"],
        "items": {"$ref": "#"},
    },
    "an identifier inside": {
        "type": "array",
        "items": {"$ref": "#/$defs/own"},
        "$defs": {
            "own": {"$id": "urn:example:own", "type": ["array", "null"], "items": {"$ref": "#"}}
        },
    },
    "data that looks like a reference": {
        "enum": [{"$ref": "#"}, "a"],
        "default": {"$ref": "#/a"},
    },
    "a property of that name": {
        "anyOf": [{"properties": {"$ref": {"type": "null"}}, "required": ["$ref"]}]
    },
    "a property that is named like a keyword": {
        "properties": {
            "const": {"$ref": "#/properties/next"},
            "a": {"$ref": "#/properties/const"},
            "next": {"type": "null"},
        },
    },
    "definitions that are no keyword any more": {
        "$ref": "#/definitions/n",
        "definitions": {"n": {"type": "null"}},
    },
    "2019-09": {
        "$schema": "https://json-schema.org/draft/2019-09/schema",
        "type": ["array", "null"],
        "items": {"$recursiveRef": "#"},
    },
    "draft-07": {
        "$schema": DRAFT.format(7),
        "$ref": "#/definitions/list",
        "definitions": {
            "list": {"type": ["array", "null"], "items": {"$ref": "#/definitions/list"}}
        },
    },
    "draft-07 with an anchor": {
        "$schema": DRAFT.format(7),
        "anyOf": [{"$ref": "#word"}],
        "definitions": {
            "w": {"$id": "#word", "type": ["array", "null"], "items": {"$ref": "#/anyOf/0"}}
        },
    },
    "draft-04": {
        "$schema": DRAFT.format(4),
        "anyOf": [{"type": "integer", "minimum": 0, "exclusiveMinimum": True}, {"type": "null"}],
    },
    "draft-04 with an identifier": {
        "$schema": DRAFT.format(4),
        "id": "https://example.com/four",
        "type": ["array", "null"],
        "items": {"$ref": "#"},
    },
    "a word that was a keyword": {"id": "x", "type": ["array", "null"], "items": {"$ref": "#"}},
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_what_is_no_object_is_listed_under_result(name: str) -> None:
    schema = SCHEMAS[name]
    check_schema(schema, what="outputSchema", root_object=False)

    listed = output_schema(schema)

    assert wraps(schema)
    assert listed["type"] == "object" and listed["required"] == ["result"]
    assert list(listed["properties"]) == ["result"]
    assert listed.get("$schema") == schema.get("$schema")
    check_schema(listed, what="outputSchema", root_object=True)


@pytest.mark.parametrize("name", SCHEMAS)
@settings(max_examples=60)
@given(value=VALUES)
def test_it_allows_what_it_allowed_before(name: str, value: Any) -> None:
    schema = SCHEMAS[name]
    listed = output_schema(schema)
    before = jsonschema_rs.validator_for(schema).is_valid(value)

    assert jsonschema_rs.validator_for(listed).is_valid({"result": value}) is before
    reference = jsonschema.validators.validator_for(listed, jsonschema.Draft202012Validator)
    assert reference(listed).is_valid({"result": value}) is before


@rows(
    "schema, result",
    ("data", {"enum": [{"$ref": "#"}]}, {"enum": [{"$ref": "#"}]}),
    ("a default", {"default": {"$ref": "#/a"}}, {"default": {"$ref": "#/a"}}),
    (
        "a property that is named like a keyword",
        {"properties": {"const": {"$ref": "#"}}},
        {"properties": {"const": {"$ref": "#/properties/result"}}},
    ),
    ("a list", {"anyOf": [{"$ref": "#/a"}]}, {"anyOf": [{"$ref": "#/properties/result/a"}]}),
)
def test_references_change_and_data_does_not(
    schema: dict[str, Any], result: dict[str, Any]
) -> None:
    assert output_schema(schema)["properties"]["result"] == result


def test_definitions_are_found_where_simple_clients_look() -> None:
    assert output_schema(SCHEMAS["a list of definitions"]) == {
        "type": "object",
        "$defs": {"node": NODE},
        "properties": {"result": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
        "required": ["result"],
    }


def test_an_object_is_listed_as_it_is() -> None:
    schema = {**NODE, "$defs": {"node": NODE}}

    assert not wraps(schema) and not wraps(None)
    assert output_schema(schema) == schema


@rows(
    "schema, listed",
    ("nothing to change", {"type": "object"}, {"type": "object"}),
    (
        "true and false",
        {"type": "object", "properties": {"a": True, "b": False, "c": {}}},
        {"type": "object", "properties": {"a": {}, "b": {"not": {}}, "c": {}}},
    ),
    (
        "a mirrored parameter",
        {"type": "object", "properties": {"r": {"type": "string", "x-mcp-header": "Region"}}},
        {"type": "object", "properties": {"r": {"type": "string"}}},
    ),
    (
        "a mirrored parameter in another",
        {
            "type": "object",
            "properties": {
                "o": {
                    "type": "object",
                    "properties": {"r": {"type": "string", "x-mcp-header": "R"}},
                }
            },
        },
        {
            "type": "object",
            "properties": {"o": {"type": "object", "properties": {"r": {"type": "string"}}}},
        },
    ),
    (
        "a parameter of that name",
        {"type": "object", "properties": {"x-mcp-header": {"type": "string"}}},
        {"type": "object", "properties": {"x-mcp-header": {"type": "string"}}},
    ),
    (
        "keywords of 2020-12",
        {"type": "object", "$schema": "https://json-schema.org/draft/2020-12/schema", "if": {}},
        {"type": "object", "$schema": "https://json-schema.org/draft/2020-12/schema", "if": {}},
    ),
)
def test_input_schemas_keep_all_that_older_clients_can_read(
    schema: dict[str, Any], listed: dict[str, Any]
) -> None:
    before = str(schema)

    assert input_schema(schema) == listed
    assert str(schema) == before, "the schema that modern clients read was changed"
