"""Addresses of electronic mail."""

import re
from collections.abc import Iterator
from typing import Final

from app.guards.spans import NAMES, Span

_AT: Final = re.compile("@|%40")
_LONGEST_NAME: Final = 64
"""RFC 5321, 4.5.3.1.1."""

# Letters of European languages too; those of scripts that put no spaces between words would
# take the sentence before an address with them.
_LETTERS: Final = "A-Za-z0-9\u00c0-\u024f"
_NAME_BACKWARDS: Final = re.compile(rf"[{_LETTERS}._%+'-]*[{_LETTERS}_]")
_DOMAIN: Final = re.compile(
    rf"(?![0-9]x\.)"  # icon@2x.png
    rf"(?:[{_LETTERS}](?:[{_LETTERS}-]{{0,62}})\.){{1,8}}(?:[A-Za-z]{{2,24}}|xn--[A-Za-z0-9-]{{2,58}})"
    rf"(?![{_LETTERS}])"
)


def find_emails(text: str) -> Iterator[Span]:
    """Addresses in a text, also where ``@`` was written as ``%40``."""
    for at in _AT.finditer(text):
        domain = _DOMAIN.match(text, at.end())
        if domain is None:
            continue
        before = text[max(0, at.start() - _LONGEST_NAME) : at.start()]
        name = _NAME_BACKWARDS.match(before[::-1])
        # git@host:path is how repositories are named, and nobody's address.
        if name is None or (name[0] == "tig" and text.startswith(":", domain.end())):
            continue
        yield Span(at.start() - name.end(), domain.end(), "email", NAMES["email"])
