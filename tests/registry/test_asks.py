"""What a tool may say about its questions, and what is refused when it is loaded."""

from typing import Any

import pytest
from pydantic import BaseModel

from app import Context, tool
from app.registry.options import ToolDefinitionError
from app.registry.tool import Tool, compile_tool
from app.settings import Settings
from tests.support.cases import rows


class Login(BaseModel):
    name: str


class Address(BaseModel):
    login: Login


class Account(BaseModel):
    access_token: str


def _compiled(function: Any, **options: Any) -> Tool:
    return compile_tool(tool(**options)(function), name="x", source=None, settings=Settings())


async def asks(ctx: Context) -> None: ...


async def has_no_context() -> None: ...


def in_thread(ctx: Context) -> None: ...


@rows(
    "options, names",
    ("nothing", {}, ()),
    ("a form", {"asks": ["elicitation"]}, ("elicitation",)),
    ("a model is a form", {"asks": (Login,)}, ("elicitation",)),
    (
        "in the order of the list, once each",
        {"asks": ["roots", Login, "elicitation"]},
        ("elicitation", "roots"),
    ),
)
def test_a_tool_says_what_it_asks(options: dict[str, Any], names: tuple[str, ...]) -> None:
    compiled = _compiled(asks, **options)
    assert compiled.asks == names
    assert not compiled.single_use


@rows(
    "function, options, problem",
    ("no list", asks, {"asks": "elicitation"}, "must be a list"),
    ("no such question", asks, {"asks": ["password"]}, "known are elicitation, elicitation.url"),
    ("a nested model", asks, {"asks": [Address]}, r"Address\.login is nothing that a form"),
    ("a secret", asks, {"asks": [Account]}, r"Account\.access_token .* ctx\.elicit_page"),
    ("no model", asks, {"asks": [dict]}, "subclass of BaseModel"),
    ("no Context", has_no_context, {"asks": [Login]}, "takes no Context"),
    ("a thread", in_thread, {"asks": ["roots"]}, "only an async tool can"),
    ("single use of nothing", asks, {"single_use": True}, "say what in asks"),
)
def test_what_cannot_be_asked_is_refused(
    function: Any, options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ToolDefinitionError, match=problem):
        _compiled(function, **options)
