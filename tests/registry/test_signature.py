"""From typed functions to schemas and back to Python values."""

import datetime as dt
import enum
import uuid
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import pytest
from pydantic import BaseModel, Field, SecretStr, ValidationError, WithJsonSchema

from app import Context, Header, Image, ToolResult, ToolSpec, tool
from app.registry.options import ToolDefinitionError
from app.registry.signature import (
    InputPlan,
    SignatureError,
    describe,
    input_plan,
    output_plan,
)
from app.registry.tool import compile_tool
from app.settings import Settings

NOTHING = {"type": "object", "additionalProperties": False}


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Query(BaseModel):
    text: str
    colour: Colour = Colour.RED


class Node(BaseModel):
    value: int
    children: list["Node"] = []


class Old(TypedDict):
    """A ``typing.TypedDict``: pydantic alone refuses it before Python 3.12."""

    name: str
    age: NotRequired[int]


@dataclass
class Point:
    x: float
    y: float


def _plan(function: Any, **how: Any) -> InputPlan:
    return input_plan(tool(**how)(function), refuse_unknown=True)


def _property(annotation: Any, **parameter: Any) -> dict[str, Any]:
    def function(value: Any) -> None: ...

    function.__annotations__["value"] = annotation
    if "default" in parameter:
        function.__defaults__ = (parameter["default"],)
    schema: dict[str, Any] = _plan(function).schema["properties"]["value"]
    return schema


def test_a_function_without_parameters_accepts_only_an_empty_object() -> None:
    def ping() -> None: ...

    plan = _plan(ping)
    assert plan.schema == NOTHING
    assert plan.bind({}) == {}


def test_only_parameters_without_a_default_are_required() -> None:
    def f(a: str, b: int = 5, c: str | None = None) -> None: ...

    plan = _plan(f)
    assert plan.schema["required"] == ["a"]
    assert plan.schema["properties"]["b"] == {"type": "integer", "default": 5}
    assert plan.bind({"a": "x"}) == {"a": "x", "b": 5, "c": None}


PROPERTIES: dict[str, tuple[Any, dict[str, Any]]] = {
    "str": (str, {"type": "string"}),
    "Literal": (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
    "Enum": (Colour, {"type": "string", "enum": ["red", "blue"]}),
    "datetime": (dt.datetime, {"type": "string", "format": "date-time"}),
    "date": (dt.date, {"type": "string", "format": "date"}),
    "timedelta": (dt.timedelta, {"type": "string", "format": "duration"}),
    "UUID": (uuid.UUID, {"type": "string", "format": "uuid"}),
    "Path": (Path, {"type": "string", "format": "path"}),
    "bytes": (bytes, {"type": "string", "contentEncoding": "base64"}),
    "constrained": (
        Annotated[int, Field(ge=1, le=3)],
        {"type": "integer", "minimum": 1, "maximum": 3},
    ),
    "list": (list[int], {"type": "array", "items": {"type": "integer"}}),
    "dict": (dict[str, float], {"type": "object", "additionalProperties": {"type": "number"}}),
    "mirrored": (Annotated[str, Header("R")], {"type": "string", "x-mcp-header": "R"}),
    "mirrored Optional": (
        Annotated[str | None, Header("R")],
        {"type": "string", "x-mcp-header": "R"},
    ),
    "mirrored int": (
        Annotated[int, Header("N")],
        {"type": "integer", "minimum": 1 - 2**53, "maximum": 2**53 - 1, "x-mcp-header": "N"},
    ),
}


@pytest.mark.parametrize(("annotation", "schema"), PROPERTIES.values(), ids=PROPERTIES.keys())
def test_a_type_has_its_schema(annotation: Any, schema: dict[str, Any]) -> None:
    assert _property(annotation) == schema


def test_a_model_is_written_out_where_it_is_used() -> None:
    assert _property(Query) == {
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "colour": {"type": "string", "enum": ["red", "blue"], "default": "red"},
        },
        "required": ["text"],
    }


def test_a_recursive_model_keeps_a_local_reference() -> None:
    def f(node: Node) -> None: ...

    plan = _plan(f)
    assert plan.schema["properties"]["node"] == {"$ref": "#/$defs/Node"}
    deep: dict[str, Any] = {"value": 5}
    for value in range(5):
        deep = {"value": value, "children": [deep]}
    assert plan.bind({"node": deep})["node"].children[0].value == 3


def test_an_optional_mirrored_parameter_is_not_required() -> None:
    def f(region: Annotated[str | None, Header("Region")]) -> None: ...

    plan = _plan(f)
    assert "required" not in plan.schema
    assert plan.bind({}) == {"region": None}


BOUND: dict[str, tuple[Any, Any, Any]] = {
    "an int from 7.0": (int, 7.0, 7),
    "an int from 1e3": (int, 1e3, 1000),
    "an int beyond 64 bits": (int, 10**30, 10**30),
    "text of digits": (str, "007", "007"),
    "a Decimal from text": (Decimal, "0.10", Decimal("0.10")),
    "a Decimal from a number": (Decimal, 0.1, Decimal("0.1")),
    "bytes": (bytes, "+/+/", b"\xfb\xff\xbf"),
    "a set": (set[int], [1, 2], {1, 2}),
    "a tuple": (tuple[int, str], [1, "a"], (1, "a")),
    "a date": (dt.date, "2026-01-02", dt.date(2026, 1, 2)),
    "an Enum": (Colour, "blue", Colour.BLUE),
    "a dataclass": (Point, {"x": 1, "y": 2}, Point(1.0, 2.0)),
    "a TypedDict": (Old, {"name": "a"}, {"name": "a"}),
    "a list of TypedDicts": (list[Old], [{"name": "a", "age": 3}], [{"name": "a", "age": 3}]),
    "int keys": (dict[int, str], {"1": "a"}, {1: "a"}),
}


@pytest.mark.parametrize(("annotation", "sent", "got"), BOUND.values(), ids=BOUND.keys())
def test_json_becomes_the_python_value(annotation: Any, sent: Any, got: Any) -> None:
    def function(value: Any) -> None: ...

    function.__annotations__["value"] = annotation
    value = _plan(function).bind({"value": sent})["value"]
    assert value == got
    assert type(value) is type(got)


def test_a_schema_that_was_replaced_is_not_trusted_for_the_type() -> None:
    def f(value: Annotated[int, WithJsonSchema({"type": "string"})]) -> None: ...

    plan = _plan(f)
    assert plan.bind({"value": "5"}) == {"value": 5}
    with pytest.raises(ValidationError):
        plan.bind({"value": "five"})


def test_plain_parameters_keep_their_constraints_and_defaults() -> None:
    def f(
        a: Annotated[int, Field(ge=1)],
        b: float = 2,
        c: bool = False,
        d: Literal["x", "y"] = "x",
    ) -> None: ...

    assert _plan(f).bind({"a": 3.0, "b": 1}) == {"a": 3, "b": 1.0, "c": False, "d": "x"}
    assert [type(value) for value in _plan(f).bind({"a": 1}).values()] == [int, float, bool, str]


def test_awkward_names_are_just_names() -> None:
    def f(
        self: int,
        schema: int,
        model_config: int,
        _id: int,
        ctx: int,
        from_: Annotated[int, Field(alias="from")],
    ) -> None: ...

    names = ["self", "schema", "model_config", "_id", "ctx", "from"]
    plan = _plan(f)
    assert list(plan.schema["properties"]) == names
    assert plan.bind(dict.fromkeys(names, 1)) == dict.fromkeys([*names[:-1], "from_"], 1)


@pytest.mark.parametrize("annotation", [Context, Context | None, "Context"])
def test_a_context_is_injected_and_not_in_the_schema(annotation: Any) -> None:
    def f(ctx: Any) -> None: ...

    f.__annotations__["ctx"] = annotation
    plan = _plan(f)
    assert plan.schema == NOTHING
    assert plan.context_parameter == "ctx"


def test_descriptions_come_from_the_docstring_unless_given() -> None:
    def f(a: int, b: Annotated[int, Field(description="given")]) -> None:
        """Say something.

        At length.

        Args:
            a: The first.
            b: Not used.
        """

    plan = _plan(f)
    assert describe(tool(f))[0] == "Say something.\n\nAt length."
    assert plan.schema["properties"]["a"]["description"] == "The first."
    assert plan.schema["properties"]["b"]["description"] == "given"


def test_a_default_that_has_no_json_form_is_left_out_of_the_schema() -> None:
    assert _property(Any, default=object()) == {}


def test_a_field_may_stand_as_the_default() -> None:
    def f(a: int = Field(3, ge=0), b: list[int] = Field(default_factory=list)) -> None: ...  # noqa: B008

    plan = _plan(f)
    assert plan.schema["properties"]["a"] == {"type": "integer", "minimum": 0, "default": 3}
    assert plan.bind({}) == {"a": 3, "b": []}


def test_with_a_schema_of_ones_own_arguments_come_as_they_are() -> None:
    schema = {"type": "object", "properties": {"cik-A": {"type": "string"}}}

    def f(**arguments: Any) -> None: ...

    plan = _plan(f, input_schema=schema)
    assert plan.schema == schema
    assert plan.bind({"cik-A": "x"}) == {"cik-A": "x"}


def _positional(a: int, /) -> None: ...
def _star(*a: int) -> None: ...
def _keywords(**a: int) -> None: ...
def _unresolved(a: "Missing") -> None: ...  # type: ignore[name-defined]  # noqa: F821
def _formless(a: object.__class__.__call__.__class__) -> None: ...  # type: ignore[name-defined]
def _secret_type(value: Annotated[SecretStr, Header("Value")]) -> None: ...


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (_positional, "by name"),
        (_star, "by name"),
        (_keywords, "input_schema"),
        (_unresolved, "Missing"),
        (_formless, "no JSON form"),
        (_secret_type, "secret"),
    ],
)
def test_a_function_that_cannot_be_a_tool_is_refused_with_the_reason(
    function: Any, reason: str
) -> None:
    with pytest.raises(SignatureError, match=reason):
        _plan(function)


SECRETS = ["api_key", "apiKey", "accessToken", "tokens", "clientSecret", "PASSWORD", "privateKey"]
NO_SECRETS = ["region", "key", "tokenizer", "compass", "pages", "secretary", "authority"]


@pytest.mark.parametrize("own_schema", [False, True])
@pytest.mark.parametrize("name", [*SECRETS, *NO_SECRETS])
def test_what_is_named_like_a_secret_is_not_mirrored(name: str, own_schema: bool) -> None:
    async def f(**arguments: str) -> None: ...

    schema = {"type": "object", "properties": {name: {"type": "string", "x-mcp-header": "A"}}}
    spec: ToolSpec[..., Any] = tool(input_schema=schema)(f)
    if not own_schema:

        def g(value: Annotated[str, Header("A"), Field(alias=name)]) -> None: ...

        g.__annotations__["value"] = Annotated[str, Header("A"), Field(alias=name)]
        spec = tool(g)
    if name in SECRETS:
        with pytest.raises(ToolDefinitionError, match="secret"):
            compile_tool(spec, name="t", source=None, settings=Settings())
    else:
        compile_tool(spec, name="t", source=None, settings=Settings())


def test_an_optional_around_the_mark_means_the_same() -> None:
    def f(region: Annotated[str, Header("Region")] | None = None) -> None: ...

    assert _plan(f).schema["properties"]["region"] == {"type": "string", "x-mcp-header": "Region"}


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "object", "properties": {"a": {}}}, "does not require 'a'"),
        ({"type": "object", "properties": {"a": {}, "b": {}}, "required": ["a"]}, "properties b"),
    ],
)
def test_a_schema_of_ones_own_must_fit_the_function(schema: Any, reason: str) -> None:
    def f(a: int) -> None: ...

    with pytest.raises(SignatureError, match=reason):
        _plan(f, input_schema=schema)


def _output(annotation: Any, **how: Any) -> Any:
    def f() -> Any: ...

    f.__annotations__["return"] = annotation
    return output_plan(tool(**how)(f)).schema


OUTPUTS: dict[str, tuple[Any, Any]] = {
    "int": (int, {"type": "integer"}),
    "str": (str, {"type": "string"}),
    "None": (None, {"type": "null"}),
    "list": (list[int], {"type": "array", "items": {"type": "integer"}}),
    "dict": (dict, {"type": "object", "additionalProperties": True}),
    "Any": (Any, None),
    "blocks": (Image, None),
    "blocks among others": (list[Image | str], None),
    "a whole result": (ToolResult, None),
    "a dataclass": (
        Point,
        {
            "type": "object",
            "properties": {"x": {"type": "number"}, "y": {"type": "number"}},
            "required": ["x", "y"],
        },
    ),
}


@pytest.mark.parametrize(("annotation", "schema"), OUTPUTS.values(), ids=OUTPUTS.keys())
def test_a_return_type_has_its_output_schema(annotation: Any, schema: Any) -> None:
    assert _output(annotation) == schema


def test_a_return_type_without_a_json_form_is_refused() -> None:
    with pytest.raises(SignatureError, match="return type"):
        _output(type)


def test_text_alone_needs_no_output_schema() -> None:
    assert _output(Point, structured=False) is None
