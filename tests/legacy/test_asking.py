"""Questions in the words of each revision, and what the clients' responses mean."""

from enum import Enum
from typing import Annotated, Any, Final, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from app import Titles
from app.legacy.asking import (
    Refused,
    Unaskable,
    answer,
    capabilities,
    question,
    request,
)
from app.legacy.revisions import REVISIONS, Revision
from app.protocol.asking import (
    BadAnswer,
    elicit_action,
    form_request,
    listed_roots,
    roots_request,
    sampled_message,
    sampling_request,
    url_request,
)
from app.protocol.capabilities import ASKS, has_capability
from app.registry.forms import form_of
from tests.legacy.modern import ALL, NAMES, TEXTS, load
from tests.support.cases import rows
from tests.support.legacy_schema import VERSIONS, check_request

each_revision = pytest.mark.parametrize("revision", ALL, ids=lambda each: each.version)
OLD, MARCH, JUNE, LATEST = (REVISIONS[version] for version in VERSIONS)
ID: Final = "550e8400"


def ask(modern: dict[str, Any], revision: Revision) -> Any:
    """The params of the request that a client gets."""
    message = load(request("q-1", question(modern, revision, elicitation_id=ID)))
    assert message["jsonrpc"] == "2.0" and message["id"] == "q-1"
    assert message["method"] == modern["method"]
    check_request(message, revision.version)
    return message["params"]


def form(**properties: Any) -> dict[str, Any]:
    """A form with these properties."""
    return form_request("Who?", {"type": "object", "properties": properties})


# -- forms -----------------------------------------------------------------------------------


class Size(Enum):
    SMALL = "s"
    LARGE = "l"


class Person(BaseModel):
    """One of everything that June had."""

    name: Annotated[str, Field(min_length=1, max_length=9, title="Name")] = "Ann"
    age: Annotated[int, Field(ge=0)] = 3
    ratio: float = 0.5
    is_old: bool = True
    size: Annotated[Size, Titles({"s": "Small", "l": "Large"})] = Size.SMALL
    colour: Literal["red", "blue"]


def test_a_form_is_as_it_was_in_the_latest_revision() -> None:
    modern = form_request("Who?", form_of(Person).schema)
    assert ask(modern, LATEST) == modern["params"]


def test_in_june_titles_were_names_and_booleans_alone_had_defaults() -> None:
    params = ask(form_request("Who?", form_of(Person).schema), JUNE)

    assert params["message"] == "Who?" and "mode" not in params
    schema = params["requestedSchema"]
    assert schema["required"] == ["colour"]
    size = {"type": "string", "enum": ["s", "l"], "enumNames": ["Small", "Large"]}
    found = {
        name: {key: value for key, value in each.items() if key not in ("title", "description")}
        for name, each in schema["properties"].items()
    }
    assert found == {
        "name": {"type": "string", "minLength": 1, "maxLength": 9},
        "age": {"type": "integer", "minimum": 0},
        "ratio": {"type": "number"},
        "is_old": {"type": "boolean", "default": True},
        "size": size,
        "colour": {"type": "string", "enum": ["red", "blue"]},
    }
    assert schema["properties"]["name"]["title"] == "Name"


@rows(
    "schema",
    ("choices", {"type": "array", "items": {"type": "string", "enum": ["a"]}}),
    ("titled choices", {"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}]}}),
)
def test_choices_of_several_came_last(schema: dict[str, Any]) -> None:
    modern = form(a=schema)

    assert ask(modern, LATEST)["requestedSchema"]["properties"]["a"] == schema
    with pytest.raises(Unaskable, match=r"revision 2025-06-18 .* has no choices of several"):
        ask(modern, JUNE)


@pytest.mark.parametrize("revision", [OLD, MARCH])
def test_before_june_users_could_not_be_asked(revision: Revision) -> None:
    with pytest.raises(Unaskable, match="has no elicitation"):
        ask(form(a={"type": "string"}), revision)


def test_names_of_choices_from_a_schema_that_has_them_stay() -> None:
    schema = {"type": "string", "enum": ["a"], "enumNames": ["A"]}
    for revision in (JUNE, LATEST):
        assert ask(form(a=schema), revision)["requestedSchema"]["properties"]["a"] == schema


_ABOUT: Final = {"title": TEXTS, "description": TEXTS}
_TITLED: Final = st.lists(
    st.fixed_dictionaries({"const": NAMES, "title": TEXTS}), min_size=1, max_size=3
)
FIELDS: Final = st.one_of(
    st.fixed_dictionaries(
        {"type": st.just("string")},
        optional={
            **_ABOUT,
            "minLength": st.integers(0, 9),
            "format": st.sampled_from(["email", "uri", "date", "date-time"]),
            "default": TEXTS,
        },
    ),
    st.fixed_dictionaries(
        {"type": st.sampled_from(["integer", "number"])},
        optional={**_ABOUT, "minimum": st.integers(), "default": st.integers()},
    ),
    st.fixed_dictionaries(
        {"type": st.just("boolean")}, optional={**_ABOUT, "default": st.booleans()}
    ),
    st.fixed_dictionaries(
        {"type": st.just("string"), "oneOf": _TITLED}, optional={**_ABOUT, "default": NAMES}
    ),
    st.fixed_dictionaries(
        {"type": st.just("string"), "enum": st.lists(NAMES, min_size=1)},
        optional={**_ABOUT, "default": NAMES},
    ),
    st.fixed_dictionaries(
        {"type": st.just("array"), "items": st.fixed_dictionaries({"anyOf": _TITLED})},
        optional={**_ABOUT, "minItems": st.integers(0, 3)},
    ),
)


@given(properties=st.dictionaries(NAMES, FIELDS, max_size=4))
def test_whatever_a_form_asks_is_in_the_vocabulary_of_the_revision(
    properties: dict[str, Any],
) -> None:
    modern = form_request("Who?", {"type": "object", "properties": properties, "required": []})
    several = any(each["type"] == "array" for each in properties.values())
    for revision in ALL:
        try:
            params = ask(modern, revision)
        except Unaskable:
            assert not revision.elicitation or (several and not revision.form_vocabulary)
        else:
            assert list(params["requestedSchema"]["properties"]) == list(properties)


# -- URLs and roots --------------------------------------------------------------------------


def test_a_url_came_last_and_has_a_name_there() -> None:
    modern = url_request("Sign in.", "https://example.com/in")

    assert ask(modern, LATEST) == {**modern["params"], "elicitationId": ID}
    for revision in (OLD, MARCH, JUNE):
        with pytest.raises(Unaskable, match="has no elicitation by URL"):
            ask(modern, revision)


@each_revision
def test_roots_are_asked_for_in_each_revision(revision: Revision) -> None:
    assert ask(roots_request(), revision) == {}


# -- sampling --------------------------------------------------------------------------------

HELLO = {"type": "text", "text": "Hello"}
PICTURE = {"type": "image", "data": "MTIz", "mimeType": "image/png"}
SOUND = {"type": "audio", "data": "MTIz", "mimeType": "audio/wav"}
USE = {"type": "tool_use", "id": "u", "name": "add", "input": {"a": 1}}
DONE = {"type": "tool_result", "toolUseId": "u", "content": [HELLO], "structuredContent": 3}


def sampling(*messages: Any, **options: Any) -> dict[str, Any]:
    """A request for what the client's model says to these messages of the user."""
    return sampling_request(
        {
            "messages": [{"role": "user", "content": each} for each in messages],
            "maxTokens": 100,
            **options,
        }
    )


@each_revision
def test_one_block_is_asked_in_each_revision(revision: Revision) -> None:
    options = {
        "systemPrompt": "Be kind.",
        "temperature": 0.5,
        "stopSequences": ["."],
        "modelPreferences": {"hints": [{"name": "m"}], "costPriority": 0.1},
        "metadata": {"k": 1},
    }
    modern = sampling(HELLO, PICTURE, **options)
    assert ask(modern, revision) == modern["params"]


def test_messages_with_several_blocks_were_several_messages() -> None:
    modern = sampling([HELLO, PICTURE], HELLO)

    assert ask(modern, LATEST) == modern["params"]
    for revision in (OLD, MARCH, JUNE):
        assert ask(modern, revision) == sampling(HELLO, PICTURE, HELLO)["params"]


def test_blocks_lose_what_the_revision_does_not_have() -> None:
    block = {**HELLO, "annotations": {"priority": 1, "lastModified": "x"}, "_meta": {"k": 1}}
    assert (
        ask(sampling(block), MARCH) == sampling({**HELLO, "annotations": {"priority": 1}})["params"]
    )
    assert ask(sampling(block), JUNE) == sampling(block)["params"]


def test_a_model_that_cannot_hear_is_not_asked_about_sound() -> None:
    assert ask(sampling(SOUND), MARCH) == sampling(SOUND)["params"]
    with pytest.raises(Unaskable, match="has no audio"):
        ask(sampling(SOUND), OLD)


TOOLS = [{"name": "add", "inputSchema": {"type": "object", "properties": {"a": True}}}]


@rows(
    "modern",
    ("tools", sampling(HELLO, tools=TOOLS)),
    ("a choice", sampling(HELLO, toolChoice={"mode": "none"})),
    ("a use", sampling([USE])),
    ("a result", sampling(DONE)),
)
def test_tools_in_sampling_came_last(modern: dict[str, Any]) -> None:
    ask(modern, LATEST)
    for revision in (OLD, MARCH, JUNE):
        with pytest.raises(Unaskable, match="has no tools in sampling"):
            ask(modern, revision)


def test_tools_and_what_they_gave_are_objects_in_the_latest_revision() -> None:
    params = ask(sampling(HELLO, [DONE], tools=TOOLS, toolChoice={"mode": "auto"}), LATEST)

    assert params["tools"][0]["inputSchema"]["properties"] == {"a": {}}
    assert params["toolChoice"] == {"mode": "auto"}
    assert params["messages"][1]["content"][0]["structuredContent"] == {"result": 3}


def test_a_question_does_not_change_what_it_was_made_of() -> None:
    modern = sampling([HELLO, SOUND], tools=TOOLS)
    before = str(modern)
    ask(modern, LATEST)
    assert str(modern) == before


# -- answers ---------------------------------------------------------------------------------


def test_answers_are_what_the_readers_expect() -> None:
    accepted = answer("elicitation/create", {"result": {"action": "accept", "content": {"a": 1}}})
    said = answer(
        "sampling/createMessage",
        {"result": {"role": "assistant", "content": HELLO, "model": "m"}},
    )
    roots = answer("roots/list", {"result": {"roots": [{"uri": "file:///a"}]}})

    assert elicit_action(accepted) == "accept" and accepted["content"] == {"a": 1}
    assert sampled_message(said, with_tools=False)["content"] == [HELLO]
    assert listed_roots(roots) == [{"uri": "file:///a"}]


@pytest.mark.parametrize("response", [{}, {"result": None}, {"result": []}, {"error": "no"}])
def test_an_answer_that_is_none_is_found_out_by_its_reader(response: dict[str, Any]) -> None:
    with pytest.raises(BadAnswer):
        elicit_action(answer("elicitation/create", response))


@rows(
    "code, action",
    ("the user refused", -1, "decline"),
    ("not for this client", -32601, "cancel"),
    ("a mode that it does not know", -32602, "cancel"),
    ("no code", None, "cancel"),
)
def test_an_error_to_a_form_is_a_no(code: int | None, action: str) -> None:
    response = {"error": {"code": code, "message": "m"}}
    assert elicit_action(answer("elicitation/create", response)) == action


@pytest.mark.parametrize("method", ["sampling/createMessage", "roots/list"])
def test_an_error_to_what_knows_no_no_is_a_failure(method: str) -> None:
    error = {"code": -1, "message": "User rejected\x1b the request" + "x" * 500}

    with pytest.raises(Refused) as raised:
        answer(method, {"error": error})

    text = str(raised.value)
    assert text.startswith(f"The client answered {method} with error -1: User rejected the request")
    assert len(text) < 300
    with pytest.raises(Refused, match=r"error \(no code\): \(no message\)"):
        answer(method, {"error": {}})


# -- capabilities ----------------------------------------------------------------------------

URL_ALONE: Final[dict[str, Any]] = {"elicitation": {"url": {}}}
BOTH: Final[dict[str, Any]] = {"elicitation": {"form": {}, "url": {}}}
ALL_OF_THEM = {
    "roots": {"listChanged": True},
    "sampling": {"tools": {}, "context": {}},
    **BOTH,
    "experimental": {"x": {}},
    "tasks": {},
}


@rows(
    "declared, version, can",
    ("nothing", {}, "2025-11-25", ()),
    ("forms", {"elicitation": {}}, "2025-11-25", ("elicitation",)),
    ("forms in June", {"elicitation": {}}, "2025-06-18", ("elicitation",)),
    ("forms before there were any", {"elicitation": {}}, "2025-03-26", ()),
    ("URLs", URL_ALONE, "2025-11-25", ("elicitation.url",)),
    ("URLs before there were any", URL_ALONE, "2025-06-18", ("elicitation",)),
    ("both", BOTH, "2025-11-25", ("elicitation", "elicitation.url")),
    ("all", ALL_OF_THEM, "2025-11-25", ASKS),
    ("all of June", ALL_OF_THEM, "2025-06-18", ("elicitation", "sampling", "roots")),
    ("all of November", ALL_OF_THEM, "2024-11-05", ("sampling", "roots")),
    ("no objects", {"roots": True, "sampling": [], "elicitation": 1}, "2025-11-25", ()),
    ("none", None, "2025-11-25", ()),
)
def test_a_client_can_be_asked_what_its_revision_let_it_declare(
    declared: Any, version: str, can: tuple[str, ...]
) -> None:
    modern = capabilities(declared, REVISIONS[version])
    assert tuple(name for name in ASKS if has_capability(modern, name)) == can


_DECLARED: Final[st.SearchStrategy[dict[str, Any]]] = st.dictionaries(
    st.sampled_from(["roots", "sampling", "elicitation", "tasks"]),
    st.none()
    | st.dictionaries(
        st.sampled_from(["form", "url", "tools", "voice"]), st.none() | st.just({}), max_size=3
    ),
)


@given(declared=_DECLARED)
def test_in_the_latest_revision_they_mean_what_they_mean_today(declared: dict[str, Any]) -> None:
    modern = capabilities(declared, LATEST)
    for name in ASKS:
        assert has_capability(modern, name) is has_capability(declared, name), name
