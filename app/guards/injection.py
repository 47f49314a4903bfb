"""Prompt injection in the arguments of a tool: phrases that a person seldom writes to a tool.

This is a heuristic. It finds what is common and cheap to find, in five languages, and is a reason
for a line in a log or a second look. It misses what is said in other words or other languages,
with letters that look alike, or in code; and it finds honest texts that quote an attack.

Case, white space, most punctuation between words, invisible characters, terminal sequences and
full-width letters make no difference, and text in tag characters is read as a model reads it.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from app.guards.cleaning import clean_text
from app.guards.phrases import HIDDEN_TEXT, PHRASES, Phrase

MAX_CHARACTERS: Final = 131_072
"""Characters of all texts and keys together that are looked at; what lies behind is not."""

MAX_VALUES: Final = 20_000
"""Values that are looked at, of whatever kind."""

MAX_PATH: Final = 200
MAX_KEY: Final = 60
"""Characters of a path, and of each key in it."""

SHORTEST: Final = 4
"""Characters of the shortest thing that is found."""

_CHUNK: Final = 256
"""Python sorts a run of combining marks in quadratic time; short pieces bound that."""

PATTERNS: Final[Mapping[str, re.Pattern[str]]] = {
    name: phrase.compiled() for name, phrase in PHRASES.items()
}
"""By name, what is looked for in a readable text in lower case with single spaces."""

_STEMS: Final = tuple({stem for phrase in PHRASES.values() for stem in phrase.stems})
_ASCII_STEMS: Final = tuple(filter(str.isascii, _STEMS))
_TAG: Final = re.compile("[\U000e0020-\U000e007e]")


class Finding(NamedTuple):
    """Something that looks like an injection.

    Attributes:
        path: Where, as in ``filters[2].text``; a key that is found is the end of its path.
        pattern: Its name in ``PATTERNS``.
    """

    path: str
    pattern: str


def find_injection(arguments: Mapping[str, Any], *, limit: int = 10) -> tuple[Finding, ...]:
    """The first findings, in the order of the arguments; at most ``limit``."""
    texts = [text for text, _, _ in _walk(arguments)]
    readable = list(map(_readable, texts))
    # Nearly all calls end here. Together, texts are looked through faster than one by one.
    together = "\n".join(readable)
    stems = _ASCII_STEMS if together.isascii() else _STEMS
    if not _has_any(together, stems) and not any(map(_hides, texts)):
        return ()
    found: list[Finding] = []
    for (text, steps, step), as_read in zip(_walk(arguments), readable, strict=True):
        if names := _names(text, as_read):
            path = _path([*steps, step])
            found += [Finding(path, name) for name in names]
        if len(found) >= limit:
            break
    return tuple(dict.fromkeys(found))[:limit]  # a key and its value may have the same


def _walk(arguments: Mapping[str, Any]) -> Iterator[tuple[str, list[str | int], str | int]]:
    """Every text and key that is looked at; the steps that lead into what holds it, and to it.

    The list of steps is the one that it goes on with.
    """
    steps: list[str | int] = []
    open_: list[Iterator[tuple[str | int, Any]]] = [iter(arguments.items())]
    values, characters = MAX_VALUES, MAX_CHARACTERS
    while open_:
        for step, value in open_[-1]:
            for text in (step, value):
                if isinstance(text, str) and len(text) >= SHORTEST:
                    yield text[:characters], steps, step
                    characters -= len(text)
            values -= 1
            if values <= 0 or characters <= 0:
                return
            if isinstance(value, (dict, list, tuple)):
                steps.append(step)
                inside = value.items() if isinstance(value, dict) else enumerate(value)
                open_.append(iter(inside))
                break
        else:
            open_.pop()
            if steps:
                steps.pop()


def _readable(text: str) -> str:
    """The text as a model reads it, in lower case and with single spaces."""
    if text.isascii() and text.isprintable() and "  " not in text:
        return text.lower()
    readable = clean_text(text)
    if readable is not text:
        readable = clean_text(_TAG.sub(_letter, text))
    if not readable.isascii():
        starts = range(0, len(readable), _CHUNK)
        pieces = (readable[start : start + _CHUNK] for start in starts)
        readable = "".join(unicodedata.normalize("NFKC", piece) for piece in pieces)
        readable = readable[:MAX_CHARACTERS].replace("\u2019", "'")  # one can have become 18
    return " ".join(readable.lower().split())


def _letter(tag: re.Match[str]) -> str:
    return chr(ord(tag[0]) - 0xE0000)


def _has_any(text: str, stems: tuple[str, ...]) -> bool:
    for stem in stems:  # noqa: SIM110  # any() makes a generator, and costs twice as much
        if stem in text:
            return True
    return False


def _hides(text: str) -> bool:
    return not text.isascii() and PATTERNS[HIDDEN_TEXT].search(text) is not None


def _names(text: str, readable: str) -> list[str]:
    """Of the patterns that are found."""
    names = [name for name, phrase in PHRASES.items() if _fits(PATTERNS[name], phrase, readable)]
    return [*names, HIDDEN_TEXT] if _hides(text) else names


def _fits(pattern: re.Pattern[str], phrase: Phrase, readable: str) -> bool:
    """Whether it is found. It is tried where it may begin: a search would try it everywhere."""
    if not _has_any(readable, phrase.stems):
        return False
    for opener in phrase.openers:
        start = readable.find(opener)
        while start >= 0:
            if pattern.match(readable, start):
                return True
            start = readable.find(opener, start + 1)
    return False


def _path(steps: list[str | int]) -> str:
    path = ""
    for step in steps:
        path += f"[{step}]" if isinstance(step, int) else f".{_shown(step)}"
        if len(path) > MAX_PATH:
            return path[1 : MAX_PATH - 2] + "..."
    return path.removeprefix(".")


def _shown(key: str) -> str:
    """A key as it can be printed."""
    start = key if len(key) <= MAX_KEY else key[: MAX_KEY - 3] + "..."
    return start if start.isprintable() and clean_text(start) is start else ascii(start)[1:-1]
