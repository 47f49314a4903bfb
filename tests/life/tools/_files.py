"""How a tool tells the test what it does: lines in a file that the test names."""

from pathlib import Path


def note(path: str, line: str) -> None:
    """Append one line."""
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")
