"""Sentences about bad values: where, which rule, and never the value."""

import time
from typing import Any

import pytest

from app.registry.explain import MAX_ERRORS, explain
from app.registry.schemas import compile_explainer

SECRET = "hunter2-hunter2"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "n": {"type": "integer", "minimum": 0, "maximum": 10},
        "name": {"type": "string", "minLength": 2, "maxLength": 5, "pattern": "^[a-z]+$"},
        "kind": {"enum": ["a", "b"]},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
        "either": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "nested": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]},
    },
    "required": ["n"],
    "additionalProperties": False,
}

SENTENCES: dict[str, tuple[dict[str, Any], str]] = {
    "missing": ({}, "arguments: missing required n"),
    "unknown": (
        {"n": 1, "depth": SECRET},
        "arguments: unknown depth; known: n, name, kind, tags, either, nested",
    ),
    "wrong type": ({"n": SECRET}, "n: must be integer, not string"),
    "a fraction": ({"n": 0.5}, "n: must be integer; a fraction is not rounded"),
    "too small": ({"n": -1}, "n: must be at least 0"),
    "too large": ({"n": 11}, "n: must be at most 10"),
    "too short": ({"n": 1, "name": "a"}, "name: must have at least 2 characters"),
    "too long": ({"n": 1, "name": "abcdef"}, "name: must have at most 5 characters"),
    "pattern": ({"n": 1, "name": "A1"}, "name: must match the pattern '^[a-z]+$'"),
    "enum": ({"n": 1, "kind": SECRET}, "kind: must be one of 'a', 'b'"),
    "inside a list": ({"n": 1, "tags": ["a", 5]}, "tags[1]: must be string, not integer"),
    "too many": ({"n": 1, "tags": ["a"] * 3}, "tags: must have at most 2 items"),
    "alternatives": ({"n": 1, "either": SECRET}, "either: must be integer or null, not string"),
    "nested": ({"n": 1, "nested": {}}, "nested: missing required x"),
}


@pytest.mark.parametrize(("value", "sentence"), SENTENCES.values(), ids=SENTENCES.keys())
def test_a_sentence_names_the_place_and_the_rule(value: dict[str, Any], sentence: str) -> None:
    assert explain(compile_explainer(SCHEMA, what="inputSchema"), value) == [sentence]


@pytest.mark.parametrize("value", [row[0] for row in SENTENCES.values()])
def test_no_sentence_repeats_the_value(value: dict[str, Any]) -> None:
    assert SECRET not in str(explain(compile_explainer(SCHEMA, what="inputSchema"), value))


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "value",
    [{"n": 1, "tags": [1] * 200_000}, {"n": 1, "odd": [{}, "a", *range(100_000)]}],
    ids=["many errors", "many unlike items"],
)
def test_a_large_value_is_explained_at_once(value: dict[str, Any]) -> None:
    schema = {**SCHEMA, "properties": {**SCHEMA["properties"], "odd": {"uniqueItems": True}}}
    started = time.perf_counter()
    explain(compile_explainer(schema, what="inputSchema"), value)
    assert time.perf_counter() - started < 2


def test_odd_schemas_are_explained_too() -> None:
    schema = {"properties": {"a": False, "b": {"anyOf": [False, {"type": "string"}]}}}
    assert explain(compile_explainer(schema, what="inputSchema"), {"a": 1, "b": 1})


def test_names_and_the_number_of_sentences_are_bounded() -> None:
    value = {"n": 1, "tags": [1] * 100, "x" * 10_000: 1, "\r\nInjected: 1": 1}
    sentences = explain(compile_explainer(SCHEMA, what="inputSchema"), value)
    assert len(sentences) == MAX_ERRORS + 1
    assert len(str(sentences)) < 2000
    assert "\r" not in "".join(sentences)
