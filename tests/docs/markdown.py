"""What the tests read from Markdown files: fenced blocks, table rows, links."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block.

    Attributes:
        language: the word behind the fence.
        before: the last line above it that is not empty.
        line: of the fence in its file; 1 is the first.
    """

    language: str
    text: str
    before: str
    line: int


def blocks(path: Path, *languages: str) -> Iterator[Block]:
    """The fenced blocks of a file, those of some languages if any are named."""
    text = path.read_text("utf-8")
    for found in _FENCE.finditer(text):
        above = [line for line in text[: found.start()].splitlines() if line.strip()]
        if not languages or found[1] in languages:
            line = text.count("\n", 0, found.start()) + 1
            yield Block(found[1], found[2], above[-1] if above else "", line)


def section(path: Path, heading: str) -> str:
    """The text under a heading, up to the next of the same level or a higher one."""
    text = path.read_text("utf-8")
    level = heading.split(" ", 1)[0]
    start = re.search(rf"^{re.escape(heading)}$", text, re.MULTILINE)
    assert start, f"{path.name} has no heading {heading!r}"
    rest = text[start.end() :]
    end = re.search(rf"^#{{1,{len(level)}}} ", rest, re.MULTILINE)
    return rest[: end.start()] if end else rest


def table_rows(text: str) -> list[list[str]]:
    """The cells of each table row in a text, without heads and rules."""
    rows = []
    lines = text.splitlines()
    for index, line in enumerate(lines):
        if line.startswith("|") and not _is_rule(line):
            is_head = index + 1 < len(lines) and _is_rule(lines[index + 1])
            if not is_head:
                cells = re.split(r"(?<!\\)\|", line.strip().strip("|"))
                rows.append([cell.strip() for cell in cells])
    return rows


def _is_rule(line: str) -> bool:
    return bool(re.fullmatch(r"\|[\s:|-]+\|", line))


def links(path: Path) -> Iterator[str]:
    """Targets of the links of a file, those in fenced blocks left out."""
    for found in _LINK.finditer(_FENCE.sub("", path.read_text("utf-8"))):
        yield found[1]


def anchors(path: Path) -> set[str]:
    """The anchors that a Markdown renderer gives to the headings of a file."""
    text = _FENCE.sub("", path.read_text("utf-8"))
    names = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", name.lower()).replace(" ", "-") for name in names}


def squeezed(text: str) -> str:
    """A text without white space, so that examples may be wrapped to the page."""
    return "".join(text.split())
