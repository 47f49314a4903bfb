"""Tool files that tests write while a server watches them."""

from pathlib import Path


def write(path: Path, text: str) -> Path:
    """Write a file in one step, as an editor that saves safely does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.draft")
    draft.write_text(text, "utf-8")
    draft.replace(path)
    return path


def write_tool(
    folder: Path, name: str, answer: str = "x", description: str = "Answer.", file: str = ""
) -> Path:
    """A file (by default of the same name) with one tool that gives `answer`."""
    text = (
        "from app import tool\n\n\n"
        f'@tool\ndef {name}() -> str:\n    """{description}"""\n    return {answer!r}\n'
    )
    return write(folder / (file or f"{name}.py"), text)
