"""Places in a text, and what stands around them."""

import re
from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple

Kind = Literal["email", "phone", "card", "national_id", "secret"]

RANK: Final[dict[Kind, int]] = {
    "secret": 0,
    "email": 1,
    "card": 2,
    "national_id": 3,
    "phone": 4,
}
"""Where two kinds claim the same place, the lower number names it."""

NAMES: Final[dict[Kind, str]] = {
    "email": "[email]",
    "phone": "[phone]",
    "card": "[card]",
    "national_id": "[national id]",
    "secret": "[secret]",
}
"""What stands in the place of something when nothing of it stays."""


class Span(NamedTuple):
    """A place in a text and what is to stand there."""

    start: int
    end: int
    kind: Kind
    mask: str


# Letters and digits before a number or a key are part of it: an identifier, a hash, base64. The
# letter of an escape (a line break that was quoted as \n, a space as %20) is not. A star is that
# of a mask.
_ESCAPE: Final = re.compile(
    r"(?:\\[abfnrtv0]|\\x[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}|%[0-9A-Fa-f]{2})\Z"
)
_UUID: Final = re.compile(
    r"(?<![0-9A-Za-z])[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}(?![0-9A-Za-z])"
)
_UUID_LENGTH: Final = 36
_ESCAPE_LENGTH: Final = 6


def is_word(character: str) -> bool:
    """Whether a character is a letter or a digit of ASCII."""
    return character.isascii() and character.isalnum()


def begins_alone(text: str, start: int) -> bool:
    """Whether nothing before a place belongs to what begins there."""
    if start == 0:
        return True
    before = text[start - 1]
    if before == "*":
        return False
    if not is_word(before):
        return True
    return _ESCAPE.search(text[max(0, start - _ESCAPE_LENGTH) : start]) is not None


def ends_alone(text: str, end: int) -> bool:
    """Whether nothing after a place belongs to what ends there."""
    return end >= len(text) or not is_word(text[end])


def is_fraction(text: str, start: int) -> bool:
    """Whether digits stand behind a decimal point: a measurement, a version, an instant."""
    return start >= 2 and text[start - 1] == "." and text[start - 2].isdigit()


def is_in_uuid(text: str, start: int, end: int) -> bool:
    """Whether a place is within a UUID, some of which look like numbers of cards."""
    for found in _UUID.finditer(text, max(0, start - _UUID_LENGTH), end + _UUID_LENGTH):
        if found.start() < end and start < found.end():
            return True
    return False


def digits_mask(kind: Kind, number: str, keep_last: int) -> str:
    """A number of which only the last digits stay."""
    if not keep_last:
        return NAMES[kind]
    return "****" + "".join(filter(is_word, number))[-keep_last:]


def apply(text: str, found: Iterable[Span]) -> str:
    """The text with every place masked; the very same text where there is none."""
    spans = _apart(sorted(found, key=lambda span: (span.start, RANK[span.kind])))
    if not spans:
        return text
    pieces: list[str] = []
    position = 0
    for span in spans:
        pieces += (text[position : span.start], span.mask)
        position = span.end
    return "".join([*pieces, text[position:]])


def _apart(spans: Sequence[Span]) -> list[Span]:
    """Places that do not overlap, and cover all that was found."""
    apart: list[Span] = []
    for span in spans:
        last = apart[-1] if apart else None
        if last is None or span.start >= last.end:
            apart.append(span)
        # What is left of an address is a host; in a URL it stands behind a password.
        elif span.end > last.end and span.kind != "email":
            named = min(last, span, key=lambda each: RANK[each.kind])
            apart[-1] = last._replace(end=span.end, kind=named.kind, mask=NAMES[named.kind])
        elif span.kind == "secret":  # within something else, which is one then
            apart[-1] = last._replace(kind=span.kind, mask=span.mask)
    return apart
