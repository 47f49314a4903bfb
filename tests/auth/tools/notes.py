"""Tools that ask for scopes, and keep count of being run."""

from pathlib import Path

from app import tool


@tool
def read_notes() -> str:
    """Read what was noted."""
    return "notes"


@tool
def write_notes(path: str, text: str) -> str:
    """Add a line to a file."""
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(f"{text}\n")
    return "noted"


@tool(scopes=["tools:admin"])
def erase_notes() -> str:
    """Demand a scope by the tool itself."""
    return "erased"


@tool
def unruled() -> str:
    """No rule names this tool."""
    return "never"
