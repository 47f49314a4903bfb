"""``tools/list`` in the vocabulary of each revision."""

from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.legacy.listing import listed
from app.legacy.revisions import REVISIONS
from app.protocol.messages import ServerMessages
from app.protocol.sealed import KeyRing
from app.registry.assembly import assemble
from app.registry.loader import load_folder
from app.registry.tool import definition_of
from app.settings import Settings
from tests.legacy.modern import ALL, load, page, tools
from tests.support.cases import rows
from tests.support.legacy_schema import check_result
from tests.support.schema import check_definition

TESTS = Path(__file__).parents[1]
EVERYTHING: dict[str, Any] = {
    "name": "t",
    "title": "T",
    "description": "D.",
    "icons": [{"src": "https://example.com/i.png"}],
    "inputSchema": {"type": "object"},
    "outputSchema": {"type": "integer"},
    "annotations": {"title": "A", "readOnlyHint": True, "somebodysHint": True},
    "_meta": {"example.com/k": 1},
}


@rows(
    "version, tool",
    (
        "2024-11-05",
        "2024-11-05",
        {"name": "t", "description": "D.", "inputSchema": {"type": "object"}},
    ),
    (
        "2025-03-26",
        "2025-03-26",
        {
            "name": "t",
            "description": "D.",
            "inputSchema": {"type": "object"},
            "annotations": {"title": "T", "readOnlyHint": True},
        },
    ),
    (
        "2025-06-18",
        "2025-06-18",
        {
            "name": "t",
            "title": "T",
            "description": "D.",
            "inputSchema": {"type": "object"},
            "outputSchema": {
                "type": "object",
                "properties": {"result": {"type": "integer"}},
                "required": ["result"],
            },
            "annotations": {"title": "A", "readOnlyHint": True},
            "_meta": {"example.com/k": 1},
        },
    ),
)
def test_a_tool_has_what_the_revision_has(version: str, tool: dict[str, Any]) -> None:
    assert load(listed(page(EVERYTHING), REVISIONS[version])) == {"tools": [tool]}


def test_in_2025_11_25_icons_were_added() -> None:
    (latest,) = load(listed(page(EVERYTHING), REVISIONS["2025-11-25"]))["tools"]
    (before,) = load(listed(page(EVERYTHING), REVISIONS["2025-06-18"]))["tools"]

    assert latest == {**before, "icons": EVERYTHING["icons"]}


def test_a_title_of_annotations_stays_where_the_tool_has_none() -> None:
    tool = {key: value for key, value in EVERYTHING.items() if key != "title"}
    for version in ("2025-03-26", "2025-06-18", "2025-11-25"):
        (given,) = load(listed(page(tool), REVISIONS[version]))["tools"]
        assert given["annotations"]["title"] == "A" and "title" not in given


@pytest.mark.parametrize("revision", ALL, ids=lambda each: each.version)
def test_a_page_keeps_its_cursor_and_loses_what_is_modern(revision: Any) -> None:
    bare = {"name": "t", "inputSchema": {"type": "object"}}

    assert load(listed(page(bare, cursor="next"), revision)) == {
        "nextCursor": "next",
        "tools": [bare],
    }
    assert load(listed(page(), revision)) == {"tools": []}


def test_numbers_in_schemas_stay_exact() -> None:
    tool = {
        "name": "t",
        "inputSchema": {"type": "object", "properties": {"n": {"maximum": 10**30}}},
    }
    assert b'{"maximum":%d}' % 10**30 in listed(page(tool), REVISIONS["2025-06-18"])


@given(definitions=st.lists(tools(), max_size=3), cursor=st.none() | st.text(max_size=5))
def test_whatever_is_listed_is_in_the_vocabulary_of_the_revision(
    definitions: list[dict[str, Any]], cursor: str | None
) -> None:
    modern = page(*definitions, cursor=cursor)
    check_definition(load(modern), "ListToolsResult")
    for revision in ALL:
        result = orjson.loads(listed(modern, revision))
        check_result(result, "tools/list", revision.version)
        assert [each["name"] for each in result["tools"]] == [each["name"] for each in definitions]


@pytest.mark.parametrize("folder", ["fixtures/tools", "conformance/tools"])
def test_real_tools_are_listed_in_each_revision(folder: str) -> None:
    settings = Settings()
    assembly = assemble(
        load_folder(TESTS / folder, {}),
        {},
        {},
        settings=settings,
        policy=None,
        messages=ServerMessages({"name": "test", "version": "1"}),
        keys=KeyRing([bytes(32)]),
    )
    definitions = [definition_of(tool) for tool in assembly.catalog.tools.values()]
    assert len(definitions) > 10
    for revision in ALL:
        result = load(listed(page(*definitions), revision))
        check_result(result, "tools/list", revision.version)
        assert len(result["tools"]) == len(definitions)
