"""Invisible and bidirectional characters and terminal escapes leave what this server sends.

Somebody who reads a text on a screen and the model that reads it as characters shall read the
same. ``app/guards/characters.py`` says which characters go and where some of them stay. Besides:

=========================  ===============================================================
sequence                   what goes
=========================  ===============================================================
``ESC [`` ... (CSI)        all of it: colours, movements of the cursor
``ESC ]`` ... (OSC)        all of it, if it ends within 4,096 characters: titles, links, the
                           clipboard; likewise DCS, SOS, PM and APC
``ESC`` and a character    both
the same with C1 controls  likewise; a C1 control that begins nothing goes alone
``ESC`` before the rest    the one character; what follows is harmless without it
=========================  ===============================================================

Source: ECMA-48, sections 5.3 to 5.6.

Texts keep their letters: nothing is normalised, and what cannot be told from honest text stays,
homoglyphs for one. Hints where a line may be broken (soft hyphen, zero-width space) and marks of
direction go although honest texts have them; such a text reads the same without.
"""

import re
from collections.abc import Container
from itertools import repeat
from operator import is_
from typing import Any, Final

from app.guards.characters import ALWAYS_GO, DOUBTFUL, KEPT, PLAIN
from app.guards.members import distinct

MAX_STRING: Final = 4096
"""Characters inside a control string. One that is longer is no title and no link: it is shown."""

# What a control string may hold: a terminal gives up at CAN, SUB and at what begins anew. That
# also makes each character looked at once, however many strings are opened and none is closed.
_STRING: Final = (
    rf"[^\x07\x18\x1a\x1b\x80-\x9f]{{0,{MAX_STRING}}}+(?:\x1b\\|\x9c)",
    rf"[^\x07\x18\x1a\x1b\x80-\x9f]{{0,{MAX_STRING}}}+(?:\x07|\x1b\\|\x9c)",  # xterm: BEL too
)
_PARAMETERS: Final = r"[0-?]*+[ -/]*+[@-~]"

# It begins with a plain set of characters, for which a text is searched fast.
_GOES: Final = re.compile(
    rf"[{ALWAYS_GO}](?:(?<=\x1b)(?:\[{_PARAMETERS}|[PX^_]{_STRING[0]}|\]{_STRING[1]}|[ -/]*+[0-~])"
    rf"|(?<=\x9b){_PARAMETERS}|(?<=[\x90\x98\x9e\x9f]){_STRING[0]}|(?<=\x9d){_STRING[1]})?"
)

_ESCAPED: Final = re.compile(rb"\\(?:u00|b)")
_BACKSLASH: Final = 0x5C
_DELETE: Final = 0x7F
_SMALL: Final = 1024


def is_suspect(encoded: bytes) -> bool:
    """Whether encoded JSON may hold anything to take out; a False is certain.

    It is asked about every result, so it looks at bytes first: nearly all are ASCII.
    """
    if _DELETE in encoded or (_BACKSLASH in encoded and _has_escape(encoded)):
        return True
    if encoded.isascii():
        return False
    text = encoded.decode()
    # isprintable() is fast, and False for all that may go but fillers and selectors. These five
    # are the first bytes of those in UTF-8.
    if (
        0xCD not in encoded
        and 0xE1 not in encoded
        and 0xE3 not in encoded
        and 0xEF not in encoded
        and 0xF3 not in encoded
        and text.isprintable()
    ):
        return False
    return PLAIN.fullmatch(text) is None


def _has_escape(encoded: bytes) -> bool:
    r"""JSON writes a control character as ``\u00XX`` or ``\b``; so looks a path that was typed."""
    # The expression stops at each backslash, of which JSON inside JSON has very many.
    if len(encoded) < _SMALL:
        return _ESCAPED.search(encoded) is not None
    return b"\\u00" in encoded or b"\\b" in encoded


def clean_text(text: str) -> str:
    """The text without what has to go; the very same object where there is no such thing.

    Doing it twice is doing it once: sequences and what always goes go first, so the rest has its
    final neighbours when they decide about it; and they stay.
    """
    if PLAIN.fullmatch(text) is not None:
        return text
    cleaned = DOUBTFUL.sub(_kept, _GOES.sub("", text))
    return text if cleaned == text else cleaned


def _kept(run: re.Match[str]) -> str:
    kept = KEPT.match(run.string, run.start())
    return "" if kept is None else kept[0]


def clean_data(value: Any, keep: Container[str] = ()) -> Any:
    """JSON data whose strings and keys are clean; the same object where nothing had to go.

    No member is lost: a key that was clean keeps its name, and one that becomes like another is
    given a number, as in ``name (2)``. Data may be as deep as JSON encoders take it.

    Args:
        keep: Strings and keys that stay as they are, such as those that a schema names.
    """
    if isinstance(value, str):
        return value if value in keep else clean_text(value)
    if isinstance(value, dict):
        return _clean_members(value, keep)
    if isinstance(value, (list, tuple)):
        items = list(map(clean_data, value, repeat(keep)))
        return value if all(map(is_, items, value)) else items
    return value


def _clean_members(members: dict[str, Any], keep: Container[str]) -> dict[str, Any]:
    values = list(map(clean_data, members.values(), repeat(keep)))
    names = list(map(clean_data, members, repeat(keep)))
    if all(map(is_, values, members.values())) and all(map(is_, names, members)):
        return members
    return dict(zip(distinct(members, names, "{} ({})"), values, strict=True))
