"""Which schemas are served, and that both validators agree about values."""

from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.registry.inline import inline_references
from app.registry.schemas import (
    DIALECTS,
    SchemaError,
    allows_strings,
    check_schema,
    compile_explainer,
    compile_validator,
)

OBJECT: dict[str, Any] = {"type": "object"}


def _deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"properties": {"a": schema}}
    return {**OBJECT, **schema}


REFUSED: dict[str, tuple[Any, str]] = {
    "not an object": ([], "must be a JSON object"),
    "no type at the root": ({}, '"type": "object"'),
    "another type": ({"type": "string"}, '"type": "object"'),
    "two types": ({"type": ["object", "null"]}, '"type": "object"'),
    "an invalid keyword": ({**OBJECT, "required": "a"}, "not a valid schema"),
    "an invalid type": ({**OBJECT, "properties": {"a": {"type": "text"}}}, "properties/a/type"),
    "an unknown dialect": ({**OBJECT, "$schema": "http://example.com/s"}, "dialect"),
    "a dialect that is no text": ({**OBJECT, "$schema": 7}, "dialect"),
    "a network reference": (
        {**OBJECT, "properties": {"a": {"$ref": "http://127.0.0.1:1/x"}}},
        "$ref",
    ),
    "a file reference": ({**OBJECT, "properties": {"a": {"$ref": "file:///etc/passwd"}}}, "$ref"),
    "a relative reference": ({**OBJECT, "properties": {"a": {"$ref": "other.json"}}}, "$ref"),
    "a dynamic reference": (
        {**OBJECT, "items": {"$dynamicRef": "https://example.com/#a"}},
        "$dynamicRef",
    ),
    "a reference to nowhere": ({**OBJECT, "properties": {"a": {"$ref": "#/$defs/B"}}}, "compiled"),
    "too deep": (_deep(40), "nested deeper"),
    "too large": ({**OBJECT, "properties": {f"p{n}": {} for n in range(6000)}}, "more than"),
}


@pytest.mark.parametrize(("schema", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_a_schema_that_cannot_be_served_is_refused_with_the_reason(
    schema: Any, reason: str
) -> None:
    with pytest.raises(SchemaError) as raised:
        check_schema(schema, what="inputSchema", root_object=True)
    assert reason in str(raised.value)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("end", ["", "#"])
def test_the_dialects_that_are_listed_are_served(dialect: str, end: str) -> None:
    schema = {**OBJECT, "$schema": dialect + end, "properties": {"a": {"type": "integer"}}}
    check_schema(schema, what="inputSchema", root_object=True)
    validator = compile_validator(schema, what="inputSchema")
    assert validator.is_valid({"a": 1})
    assert not validator.is_valid({"a": "1"})


def test_references_inside_the_schema_are_followed() -> None:
    schema = {
        **OBJECT,
        "$defs": {"node": {"$anchor": "node", "properties": {"next": {"$ref": "#node"}}}},
        "properties": {"a": {"$ref": "#/$defs/node"}},
    }
    check_schema(schema, what="inputSchema", root_object=True)


@pytest.mark.parametrize("name", ["default", "examples", "const", "enum", "properties", "$defs"])
def test_properties_may_be_named_like_keywords(name: str) -> None:
    schema = {
        **OBJECT,
        "properties": {name: {"$ref": "#/$defs/D"}},
        "$defs": {"D": {"type": "object", "properties": {name: {"type": "string"}}}},
    }
    inlined = inline_references(schema)
    assert inlined["properties"][name]["properties"] == {name: {"type": "string"}}
    check_schema(inlined, what="inputSchema", root_object=True)
    remote = {**OBJECT, "properties": {name: {"$ref": "http://127.0.0.1:1/"}}}
    with pytest.raises(SchemaError):
        check_schema(remote, what="inputSchema", root_object=True)


def test_definitions_are_put_in_place_unless_they_are_recursive() -> None:
    schema = {
        **OBJECT,
        "properties": {
            "flat": {"$ref": "#/$defs/Flat", "description": "here"},
            "tree": {"$ref": "#/$defs/Tree"},
            "$ref": {"type": "string"},
        },
        "$defs": {
            "Flat": {"type": "string", "description": "there"},
            "Tree": {"properties": {"kids": {"items": {"$ref": "#/$defs/Tree"}}}},
            "Unused": {},
        },
    }
    assert inline_references(schema) == {
        **OBJECT,
        "properties": {
            "flat": {"type": "string", "description": "here"},
            "tree": {"$ref": "#/$defs/Tree"},
            "$ref": {"type": "string"},
        },
        "$defs": {"Tree": {"properties": {"kids": {"items": {"$ref": "#/$defs/Tree"}}}}},
    }


ROOT = {"$defs": {"S": {"type": "string"}, "N": {"type": "number"}, "R": {"$ref": "#/$defs/R"}}}
STRINGS: list[tuple[Any, bool]] = [
    ({}, True),
    (True, True),
    (False, False),
    ({"type": "string"}, True),
    ({"type": ["string", "null"]}, True),
    ({"type": "integer"}, False),
    ({"enum": [1, "a"]}, True),
    ({"enum": [1, 2]}, False),
    ({"const": 1}, False),
    ({"anyOf": [{"type": "object"}, {"type": "string"}]}, True),
    ({"anyOf": [{"type": "object"}, {"type": "null"}]}, False),
    ({"oneOf": [{"type": "array"}]}, False),
    ({"allOf": [{"type": "string"}, {"type": "number"}]}, False),
    ({"$ref": "#/$defs/S"}, True),
    ({"$ref": "#/$defs/N"}, False),
    ({"$ref": "#/$defs/R"}, True),
]


@pytest.mark.parametrize(("schema", "allowed"), STRINGS, ids=str)
def test_whether_a_string_could_satisfy_a_schema(schema: Any, allowed: bool) -> None:
    assert allows_strings(schema, ROOT) is allowed


leaves = st.sampled_from(
    [
        {"type": "integer", "minimum": 0},
        {"type": "number", "maximum": 10.5},
        {"type": "string", "maxLength": 3},
        {"type": "boolean"},
        {"enum": ["a", 1, None]},
        {"const": 1.0},
        {"type": ["string", "null"]},
    ]
)
schemas = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(lambda part: {"type": "array", "items": part, "maxItems": 3}, inner),
        st.builds(lambda parts: {"anyOf": parts}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(
            lambda parts, extra: {
                "type": "object",
                "properties": parts,
                "required": sorted(parts)[:1],
                "additionalProperties": extra,
            },
            st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
            st.booleans(),
        ),
    ),
    max_leaves=6,
)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-20, 20)
    | st.floats(-20, 20, width=16)
    | st.integers(-(2**70), 2**70)
    | st.text("ab1", max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abcd"), inner),
    max_leaves=8,
)


@given(schemas, values)
def test_the_fast_validator_and_the_authority_agree(schema: dict[str, Any], value: Any) -> None:
    jsonschema.Draft202012Validator.check_schema(schema)
    fast = compile_validator(schema, what="schema").is_valid(value)
    assert fast == compile_explainer(schema, what="schema").is_valid(value)
