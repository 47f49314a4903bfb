"""What a browser sends for a form, and what it is shown."""

from typing import Annotated, Any, Literal
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, SecretStr

from app import Titles
from app.http.fields import content_of, fields_of, parse_form
from app.protocol.jsonrpc import dumps
from app.registry.forms import form_of
from tests.support.cases import rows


class Everything(BaseModel):
    text: str = "as it was"
    note: str | None = None
    secret: SecretStr | None = None
    pin: int | None = None
    count: int = 3
    ratio: float = 0.5
    agreed: bool = True
    size: Annotated[Literal["s", "l"], Titles({"s": "Small", "l": "Large"})] = "l"
    areas: list[Literal["mail", "files"]] = []
    email: Annotated[str | None, Field(json_schema_extra={"format": "email"})] = None


FORM = form_of(Everything, on_page=True)
NAMES = st.sampled_from([*FORM.schema["properties"], "_token", "other", ""])
SENT = st.dictionaries(NAMES, st.lists(st.text(max_size=12), max_size=3))


@given(st.binary(max_size=200))
def test_any_body_is_a_form_or_refused(body: bytes) -> None:
    try:
        sent = parse_form(body)
    except ValueError:
        return
    assert dumps(content_of(FORM.schema, sent))


@given(SENT)
def test_whatever_is_sent_is_judged_and_shown_again(sent: dict[str, list[str]]) -> None:
    body = urlencode(sent, doseq=True).encode()
    content = content_of(FORM.schema, parse_form(body) if body else {})
    assert content.keys() <= FORM.schema["properties"].keys()
    problems = FORM.problems(content)
    assert problems.keys() <= {"", *FORM.schema["properties"]}
    if not problems:
        FORM.read(content)
    for field in fields_of(FORM.schema, content):
        assert field.kind != "password" or field.value == ""


@given(st.integers(-(2**70), 2**70))
def test_a_whole_number_is_exact_or_left_as_text(number: int) -> None:
    (value,) = content_of({"properties": {"n": {"type": "integer"}}}, {"n": [str(number)]}).values()
    assert value in (number, str(number))
    assert (value == number) is (abs(number) < 2**63)
    dumps(value)


@rows(
    "sent, content",
    ("nothing", {}, {"agreed": False, "areas": []}),
    ("blank", {"text": [""], "count": [""]}, {"agreed": False, "areas": []}),
    ("a number", {"count": ["7"]}, {"count": 7, "agreed": False, "areas": []}),
    ("a fraction", {"ratio": ["1e-3"]}, {"ratio": 0.001, "agreed": False, "areas": []}),
    ("a tick", {"agreed": ["true"]}, {"agreed": True, "areas": []}),
    ("another tick", {"agreed": ["yes"]}, {"agreed": False, "areas": []}),
    ("choices", {"areas": ["mail", "files"]}, {"agreed": False, "areas": ["mail", "files"]}),
)
def test_what_is_sent_becomes_json(sent: dict[str, list[str]], content: dict[str, Any]) -> None:
    assert content_of(FORM.schema, sent) == content


def test_fields_are_shown_by_what_they_are() -> None:
    kinds = {field.name: field.kind for field in fields_of(FORM.schema, None)}
    assert kinds == {
        "text": "text",
        "note": "text",
        "secret": "password",
        "pin": "password",
        "count": "number",
        "ratio": "number",
        "agreed": "checkbox",
        "size": "select",
        "areas": "choices",
        "email": "email",
    }


def test_defaults_are_shown_first_and_then_what_was_typed() -> None:
    first = {field.name: field.value for field in fields_of(FORM.schema, None)}
    assert (first["text"], first["count"], first["agreed"], first["size"]) == (
        *("as it was", 3, True, "l"),
    )
    typed = {"count": "x", "agreed": False, "areas": ["mail"], "secret": "s", "pin": 7}
    again = {field.name: field.value for field in fields_of(FORM.schema, typed)}
    assert (again["text"], again["count"], again["agreed"]) == ("", "x", False)
    assert again["areas"] == ["mail"]
    assert again["secret"] == again["pin"] == ""


def test_choices_have_their_titles() -> None:
    (size,) = (field for field in fields_of(FORM.schema, None) if field.name == "size")
    assert size.choices == [("s", "Small"), ("l", "Large")]


@pytest.mark.parametrize("text", ["a" * 9, "7", "0"])
def test_no_problem_has_a_secret_in_it(text: str) -> None:
    class Odd(BaseModel):
        api_key: Annotated[SecretStr, Field(min_length=70, max_length=80)]

    problems = form_of(Odd, on_page=True).problems({"api_key": text})
    assert problems.keys() == {"api_key"}
    assert text not in problems["api_key"]


def test_a_format_is_explained_by_an_example() -> None:
    assert FORM.problems({"email": "nobody"}) == {"email": "must look like name@example.com"}
