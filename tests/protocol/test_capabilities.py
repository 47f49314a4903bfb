"""What a client declared, and what a tool that asks needs of it."""

from typing import Any

import pytest

from app.protocol.capabilities import (
    ASKS,
    as_capabilities,
    has_capability,
    missing_capabilities,
)
from app.protocol.errors import MissingRequiredClientCapability
from tests.support.cases import rows
from tests.support.schema import check_definition


@rows(
    "declared, has",
    ("nothing", {}, ()),
    ("an empty elicitation means forms", {"elicitation": {}}, ("elicitation",)),
    ("forms", {"elicitation": {"form": {}}}, ("elicitation",)),
    ("URLs alone", {"elicitation": {"url": {}}}, ("elicitation.url",)),
    (
        "forms and URLs",
        {"elicitation": {"form": {}, "url": {}}},
        ("elicitation", "elicitation.url"),
    ),
    ("a mode that is not known", {"elicitation": {"voice": {}}}, ("elicitation",)),
    ("sampling", {"sampling": {}}, ("sampling",)),
    ("sampling with tools", {"sampling": {"tools": {}}}, ("sampling", "sampling.tools")),
    ("roots", {"roots": {"listChanged": True}}, ("roots",)),
    ("true is no declaration", {"elicitation": True, "sampling": {"tools": True}}, ("sampling",)),
    ("null is no declaration", {"roots": None, "elicitation": {"url": None}}, ()),
    ("neither are texts and lists", {"roots": "yes", "sampling": [], "elicitation": ""}, ()),
)
def test_a_client_can_be_asked_what_it_declared(
    declared: dict[str, Any], has: tuple[str, ...]
) -> None:
    assert tuple(name for name in ASKS if has_capability(declared, name)) == has
    assert missing_capabilities(declared, ASKS) == [name for name in ASKS if name not in has]


@pytest.mark.parametrize("names", [ASKS[:n] for n in range(1, 6)] + [(name,) for name in ASKS])
def test_the_capabilities_that_a_refusal_names_are_enough(names: tuple[str, ...]) -> None:
    required = as_capabilities(names)

    check_definition(required, "ClientCapabilities")
    assert missing_capabilities(required, names) == []
    error = MissingRequiredClientCapability("It is needed.", required=required)
    assert error.as_json() == {
        "code": -32021,
        "message": "It is needed.",
        "data": {"requiredCapabilities": required},
    }
    assert error.http_status == 400
