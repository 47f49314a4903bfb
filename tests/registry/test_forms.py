"""Models as forms: what can be asked, what cannot and why, and how answers are read."""

from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import (
    AnyUrl,
    BaseModel,
    ConfigDict,
    Field,
    RootModel,
    SecretStr,
    create_model,
    field_validator,
)

from app import Titles
from app.protocol.asking import BadAnswer
from app.registry.forms import FormError, form_of
from tests.support.cases import rows
from tests.support.schema import check_definition


class Size(Enum):
    SMALL = "s"
    LARGE = "l"


class Number(Enum):
    ONE = 1


class Inner(BaseModel):
    x: int


def _model(annotation: Any, default: Any = ..., name: str = "field") -> type[BaseModel]:
    fields: dict[str, Any] = {name: (annotation, default)}
    return create_model("Asked", **fields)


@rows(
    "annotation, default, schema",
    ("a text", str, ..., {"type": "string"}),
    (
        "a text with bounds",
        Annotated[str, Field(min_length=2, max_length=9, title="T", description="D")],
        "ab",
        {
            "type": "string",
            "title": "T",
            "description": "D",
            "minLength": 2,
            "maxLength": 9,
            "default": "ab",
        },
    ),
    (
        "an address",
        Annotated[str, Field(json_schema_extra={"format": "email"})],
        ...,
        {"type": "string", "format": "email"},
    ),
    ("a link", AnyUrl, ..., {"type": "string", "format": "uri", "minLength": 1}),
    ("a day", date, ..., {"type": "string", "format": "date"}),
    ("an instant", datetime, ..., {"type": "string", "format": "date-time"}),
    (
        "a pattern is checked here alone",
        Annotated[str, Field(pattern="^a")],
        ...,
        {"type": "string"},
    ),
    (
        "a number",
        Annotated[float, Field(ge=0, le=1)],
        ...,
        {"type": "number", "minimum": 0, "maximum": 1},
    ),
    (
        "a whole number",
        Annotated[int, Field(gt=0, lt=10)],
        5,
        {"type": "integer", "minimum": 1, "maximum": 9, "default": 5},
    ),
    ("yes or no", bool, True, {"type": "boolean", "default": True}),
    ("what may be left out", str | None, None, {"type": "string"}),
    ("a choice", Literal["a", "b"], "a", {"type": "string", "enum": ["a", "b"], "default": "a"}),
    ("a choice of one", Literal["a"], ..., {"type": "string", "enum": ["a"]}),
    ("an Enum", Size, Size.LARGE, {"type": "string", "enum": ["s", "l"], "default": "l"}),
    (
        "a choice with titles",
        Annotated[Literal["r", "g"], Titles({"r": "Red"})],
        ...,
        {"type": "string", "oneOf": [{"const": "r", "title": "Red"}, {"const": "g", "title": "g"}]},
    ),
    (
        "an Enum with titles",
        Annotated[Size, Titles({"s": "Small", "l": "Large"})],
        ...,
        {
            "type": "string",
            "oneOf": [{"const": "s", "title": "Small"}, {"const": "l", "title": "Large"}],
        },
    ),
    (
        "some of several",
        Annotated[list[Literal["a", "b"]], Field(min_length=1, max_length=2)],
        ["a"],
        {
            "type": "array",
            "minItems": 1,
            "maxItems": 2,
            "items": {"type": "string", "enum": ["a", "b"]},
            "default": ["a"],
        },
    ),
    (
        "some of several with titles",
        list[Annotated[Literal["r"], Titles({"r": "Red"})]],
        ...,
        {"type": "array", "items": {"anyOf": [{"const": "r", "title": "Red"}]}},
    ),
)
def test_a_flat_model_is_a_form(annotation: Any, default: Any, schema: dict[str, Any]) -> None:
    form = form_of(_model(annotation, default))

    assert form.schema["properties"]["field"] == schema
    assert form.schema.get("required", []) == (["field"] if default is ... else [])
    check_definition(schema, "PrimitiveSchemaDefinition")
    check_definition(
        {"mode": "form", "message": "m", "requestedSchema": form.schema}, "ElicitRequestFormParams"
    )


@rows(
    "model, problem",
    ("a nested model", _model(Inner), "nothing that a form can ask"),
    ("a list of texts", _model(list[str]), "nothing that a form can ask"),
    ("a list of numbers", _model(list[int]), "nothing that a form can ask"),
    ("a mapping", _model(dict[str, str]), "nothing that a form can ask"),
    ("anything", _model(Any), "nothing that a form can ask"),
    ("this or that", _model(int | str), "nothing that a form can ask"),
    ("bytes", _model(bytes), "format|nothing"),
    ("a decimal number", _model(Decimal), "nothing that a form can ask"),
    ("choices of numbers", _model(Literal[1, 2]), "choices that are no texts"),
    ("an Enum of numbers", _model(Number), "choices that are no texts"),
    (
        "another format",
        _model(Annotated[str, Field(json_schema_extra={"format": "uuid"})]),
        "format 'uuid'",
    ),
    ("required and None", _model(str | None), "write `= None`"),
    ("a secret type", _model(SecretStr), r"looks like a secret.*ctx\.elicit_page"),
    ("a secret name", _model(str, name="apiKey"), r"looks like a secret.*ctx\.elicit_page"),
    ("a password", _model(str, name="new_password"), "looks like a secret"),
    ("a card", _model(str, name="card_number"), "looks like a secret"),
    ("a code of a card", _model(int, name="cvv"), "looks like a secret"),
    (
        "a link in a description",
        _model(Annotated[str, Field(description="See https://x.example")]),
        "has a link",
    ),
    ("a link in a title", _model(Annotated[str, Field(title="www.x.example")]), "has a link"),
    (
        "a link in the title of a choice",
        _model(Annotated[Literal["a"], Titles({"a": "HTTP://x"})]),
        "has a link",
    ),
    ("no fields", create_model("Empty"), "a model with fields"),
    ("a list for a model", RootModel[list[int]], "a model with fields"),
    ("no model", Size, "subclass of BaseModel"),
    ("no class", "name", "subclass of BaseModel"),
    ("a type without JSON form", _model(Annotated[Any, object]), "form"),
)
def test_what_no_form_can_ask_is_refused_with_the_field(model: Any, problem: str) -> None:
    with pytest.raises(FormError, match=problem):
        form_of(model)


@rows(
    "annotation, name, schema",
    ("a secret type", SecretStr, "field", {"type": "string", "writeOnly": True}),
    ("a secret or none", SecretStr | None, "field", {"type": "string", "writeOnly": True}),
    (
        "a secret with bounds",
        Annotated[SecretStr, Field(min_length=8, title="T")],
        "field",
        {"type": "string", "title": "T", "minLength": 8, "writeOnly": True},
    ),
    ("a secret name", str, "api_key", {"type": "string", "writeOnly": True}),
    ("a secret number", int, "cvv", {"type": "integer", "writeOnly": True}),
    (
        "a choice with a secret name",
        Literal["sms", "app"],
        "otp",
        {"type": "string", "enum": ["sms", "app"]},
    ),
    (
        "a link in a description",
        Annotated[str, Field(description="See https://x.example")],
        "field",
        {"type": "string", "description": "See https://x.example"},
    ),
)
def test_a_page_may_ask_what_a_form_may_not(
    annotation: Any, name: str, schema: dict[str, Any]
) -> None:
    default = None if type(None) in get_args(annotation) else ...
    form = form_of(_model(annotation, default, name), on_page=True)
    assert form.schema["properties"] == {name: schema}
    assert form.secrets == ([name] if "writeOnly" in schema else [])


def test_a_default_of_a_secret_is_not_shown() -> None:
    model = _model(str, "letmein", "password")
    assert "letmein" not in str(form_of(model, on_page=True).schema)


def test_a_page_is_flat_too() -> None:
    for annotation in (Inner, list[SecretStr], dict[str, str]):
        with pytest.raises(FormError, match="nothing that a form can ask"):
            form_of(_model(annotation), on_page=True)


class Contact(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, Field(min_length=2)]
    email: Annotated[str, Field(json_schema_extra={"format": "email"})] = "a@example.com"
    born: date | None = None
    size: Size = Size.SMALL

    @field_validator("name")
    @classmethod
    def _not_taken(cls, value: str) -> str:
        if value == "root":
            raise ValueError("is taken")
        return value


def test_an_answer_becomes_the_model() -> None:
    data, kept = form_of(Contact).read({"name": "Ada", "born": "1815-12-10", "size": "l", "x": 1})

    assert data == Contact(name="Ada", born=date(1815, 12, 10), size=Size.LARGE)
    assert kept == {"name": "Ada", "born": "1815-12-10", "size": "l"}


def test_null_is_as_good_as_absent() -> None:
    assert form_of(Contact).read({"name": "Ada", "born": None})[0].born is None


@rows(
    "content, reason",
    ("nothing", None, "missing required name"),
    ("empty", {}, "missing required name"),
    ("a list", [], "must be an object"),
    ("null for what is required", {"name": None}, "missing required name"),
    ("another type", {"name": 7}, "name: must be string, not integer"),
    ("too short", {"name": "A"}, "at least 2 characters"),
    ("another choice", {"name": "Ada", "size": "xl"}, "size: must be one of"),
    ("no address", {"name": "Ada", "email": "nobody"}, "has not the form"),
    ("no day", {"name": "Ada", "born": "2026-02-30"}, "born|form"),
    ("against a rule of the model", {"name": "root"}, "name: is taken"),
)
def test_an_answer_that_does_not_fit_is_refused_without_its_values(
    content: Any, reason: str
) -> None:
    with pytest.raises(BadAnswer, match=reason) as caught:
        form_of(Contact).read(content)
    assert "nobody" not in str(caught.value)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.dictionaries(
        st.sampled_from(["name", "email", "born", "size", "other"]),
        st.none() | st.text(max_size=4) | st.integers() | st.lists(st.text(max_size=3), max_size=2),
    )
)
def test_any_content_fits_or_is_refused(content: dict[str, Any]) -> None:
    form = form_of(Contact)
    try:
        data, kept = form.read(content)
    except BadAnswer:
        return
    # What is carried to the next round reads the same there.
    assert form.read(kept) == (data, kept)


def test_a_form_belongs_to_its_own_class() -> None:
    class More(Contact):
        nick: str = ""

    assert form_of(Contact) is form_of(Contact)
    assert "nick" in form_of(More).schema["properties"]
