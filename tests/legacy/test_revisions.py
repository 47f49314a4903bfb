"""What each revision has, and which one a client gets."""

from dataclasses import fields
from typing import Any

import pytest

from app.legacy.revisions import ASSUMED, LATEST_LEGACY, REVISIONS, Revision, negotiate
from app.protocol.schema import LEGACY_PROTOCOL_VERSIONS
from tests.support.cases import rows
from tests.support.legacy_schema import VERSIONS, defines, members

FLAGS = [field.name for field in fields(Revision) if field.name != "version"]


def test_the_revisions_are_those_of_the_protocol_newest_first() -> None:
    assert tuple(REVISIONS) == LEGACY_PROTOCOL_VERSIONS == tuple(reversed(VERSIONS))
    assert all(revision.version == version for version, revision in REVISIONS.items())
    assert LATEST_LEGACY.version == "2025-11-25"
    assert ASSUMED.version == "2025-03-26"


@pytest.mark.parametrize("version", VERSIONS)
def test_the_version_asked_for_is_the_one_that_is_spoken(version: str) -> None:
    assert negotiate(version) is REVISIONS[version]


@rows(
    "requested",
    ("the modern one", "2026-07-28"),
    ("an old one", "1999-01-01"),
    ("one to come", "2099-01-01"),
    ("no version", ""),
    ("almost one", " 2025-06-18"),
    ("null", None),
    ("a number", 20250618),
    ("a list", ["2025-06-18"]),
)
def test_who_asks_for_anything_else_gets_the_latest_of_the_era(requested: Any) -> None:
    assert negotiate(requested) is LATEST_LEGACY


@pytest.mark.parametrize("flag", [name for name in FLAGS if name != "batches"])
def test_what_came_has_stayed(flag: str) -> None:
    has = [getattr(REVISIONS[version], flag) for version in VERSIONS]
    assert has == sorted(has) and has[-1] is True and has[0] is False


def test_batches_came_and_went() -> None:
    assert [REVISIONS[version].batches for version in VERSIONS] == [True, True, False, False]


@pytest.mark.parametrize("version", VERSIONS)
@rows(
    "flag, definition, member",
    ("annotations of tools", "tool_annotations", "Tool", "annotations"),
    ("titles", "titles", "Tool", "title"),
    ("titles of servers", "titles", "Implementation", "title"),
    ("output schemas", "structured", "Tool", "outputSchema"),
    ("structured content", "structured", "CallToolResult", "structuredContent"),
    ("meta of blocks", "block_meta", "TextContent", "_meta"),
    ("meta of contents", "block_meta", "TextResourceContents", "_meta"),
    ("meta of tools", "block_meta", "Tool", "_meta"),
    ("icons", "icons", "Tool", "icons"),
    ("icons of servers", "icons", "Implementation", "icons"),
    ("descriptions", "descriptions", "Implementation", "description"),
)
def test_members_are_those_of_the_schema(
    version: str, flag: str, definition: str, member: str
) -> None:
    known = members(version, definition)
    if known is None:
        pytest.skip("there is no copy of the specification's schemas")
    assert getattr(REVISIONS[version], flag) is (member in known)


@pytest.mark.parametrize("version", VERSIONS)
@rows(
    "flag, definition",
    ("audio", "audio", "AudioContent"),
    ("resource links", "resource_links", "ResourceLink"),
    ("elicitation", "elicitation", "ElicitRequest"),
    ("elicitation by URL", "url_elicitation", "ElicitRequestURLParams"),
    ("choices with titles", "form_vocabulary", "TitledMultiSelectEnumSchema"),
    ("tools in sampling", "sampling_tools", "ToolUseContent"),
)
def test_definitions_are_those_of_the_schema(version: str, flag: str, definition: str) -> None:
    if members(version, "Tool") is None:
        pytest.skip("there is no copy of the specification's schemas")
    assert getattr(REVISIONS[version], flag) is defines(version, definition)
