"""A tool that changes the list of tools, as a developer's editor would: by writing a file."""

import secrets
from pathlib import Path

from app import tool

GENERATED = Path(__file__).with_name("generated.py")

SOURCE = '''"""Written by test_trigger_tool_change."""

from app import tool


@tool(description="Edition {edition}.")
def test_generated() -> str:
    return "{edition}"
'''


@tool
def test_trigger_tool_change() -> str:
    """Write a tool beside this one whose description is new every time."""
    edition = secrets.token_hex(4)
    # Moved into place in one step, so that a reload sees the whole file or none of it.
    draft = GENERATED.with_suffix(".draft")
    draft.write_text(SOURCE.format(edition=edition), encoding="utf-8")
    draft.replace(GENERATED)
    return f"edition {edition} was written"
