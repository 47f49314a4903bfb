"""Numbers of payment cards."""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from stdnum import luhn

from app.guards.spans import (
    Span,
    begins_alone,
    digits_mask,
    ends_alone,
    is_fraction,
    is_in_uuid,
)

# Digits in groups, with a space or a dash between two; from 13 digits on.
_RUN: Final = re.compile(r"[0-9](?:[ \u00a0\u2010\u2011-]?[0-9]){12,}+")
_GROUP: Final = re.compile(r"[0-9]+")
_SMALLEST_GROUP: Final = 3
"""Of all but the last; no issuer prints smaller ones, and columns of small numbers are no card."""

_ISSUERS: Final[tuple[tuple[str, Iterable[int]], ...]] = (
    ("4", (13, 16, 19)),  # Visa
    # Mastercard: 51 to 55, 2221 to 2720
    ("5[1-5]|222[1-9]|22[3-9]|2[3-6]|27[01]|2720", (16,)),
    ("3[47]", (15,)),  # American Express
    ("6011|64[4-9]|65", range(16, 20)),  # Discover
    ("352[89]|35[3-8]", range(16, 20)),  # JCB
    ("30[0-5]|3095|36|3[89]", range(14, 20)),  # Diners Club
    ("62|81", range(16, 20)),  # UnionPay
    ("5018|50[23]8|5893|6304|6759|676[1-3]", range(13, 20)),  # Maestro
    ("220[0-4]", range(16, 20)),  # Mir
    ("60|82|508|9792", (16,)),  # RuPay, Troy
)
"""First digits of the networks that issue cards, and how long their numbers are."""

_FIRST_DIGITS: Final = {
    length: re.compile("|".join(first for first, lengths in _ISSUERS if length in lengths))
    for length in range(13, 20)
}


def find_cards(text: str, *, keep_last: int) -> Iterator[Span]:
    """Numbers with the first digits of an issuer, a length that goes with them, and Luhn's sum."""
    for run in _RUN.finditer(text):
        # Without the groups that belong to a word or a fraction. Those between are alone.
        groups = [group.span() for group in _GROUP.finditer(text, *run.span())]
        if not begins_alone(text, run.start()) or is_fraction(text, run.start()):
            del groups[0]
        if not ends_alone(text, run.end()):
            del groups[-1:]
        for start, end in _cards_of(text, groups):
            if not is_in_uuid(text, start, end):
                yield Span(start, end, "card", digits_mask("card", text[start:end], keep_last))


def _cards_of(text: str, groups: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    first = 0
    while first < len(groups):
        last = _card_from(text, groups, first)
        if last is not None:
            yield groups[first][0], groups[last][1]
        first = first + 1 if last is None else last + 1


def _card_from(text: str, groups: list[tuple[int, int]], first: int) -> int | None:
    """The last group of the card that begins with this one."""
    digits = ""
    for index in range(first, len(groups)):
        start, end = groups[index]
        if end - start > 19 - len(digits):
            return None
        digits += text[start:end]
        if is_card(digits):
            return index
        if end - start < _SMALLEST_GROUP:
            return None
    return None


def is_card(digits: str) -> bool:
    """Whether digits are those of a payment card."""
    first = _FIRST_DIGITS.get(len(digits))
    return first is not None and first.match(digits) is not None and luhn.is_valid(digits)
