"""Telephone numbers, as the phonenumbers library knows them.

Its own search tries every piece of a text and takes seconds where there are many digits. So what
could be a number is found here first, and the library is asked about that alone. It is asked
``MAX_ASKED`` times for one text; beyond, what could be a number counts as one: a text can neither
hold the server up nor slip its numbers past.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from app.guards.spans import (
    Span,
    begins_alone,
    digits_mask,
    ends_alone,
    is_fraction,
    is_in_uuid,
)

MAX_ASKED: Final = 256
MAX_DIGITS: Final = 15
"""ITU-T E.164, 6."""
MIN_DIGITS: Final = 7

_BETWEEN: Final = r"[ \u00a0()./\u2010-\u2013-]{0,3}"
_INTERNATIONAL: Final = re.compile(rf"\+(?:{_BETWEEN}[0-9]){{{MIN_DIGITS},40}}+")
_NATIONAL: Final = re.compile(rf"[0-9](?:{_BETWEEN}[0-9]){{{MIN_DIGITS - 1},}}+")
_GROUP: Final = re.compile(r"[0-9]+")
_NO_NUMBER: Final = re.compile(
    r"(?:[0-9]{1,3}\.){3}[0-9]{1,3}"  # an IP address
    r"|[0-9]+\.[0-9]+"  # a measure or a price
    r"|.*(?:(?:19|20)[0-9]{2}([-/.])[01]?[0-9]\1[0-3]?[0-9]|[0-3]?[0-9]([-/.])[0-3]?[0-9]\2(?:19|20)[0-9]{2}).*"
)
"""Digits that stand as phone numbers do and are none; dates above all."""


class _Questions:
    """How often the library may still be asked about a text."""

    def __init__(self) -> None:
        self.left = MAX_ASKED

    def ask(self, candidate: str, country: str | None) -> bool:
        self.left -= 1
        if self.left < 0:
            return True
        # Imported by whoever has a number to look at; it is among our slowest imports.
        import phonenumbers  # noqa: PLC0415

        matcher = phonenumbers.PhoneNumberMatcher(
            candidate, country, leniency=phonenumbers.Leniency.VALID, max_tries=4
        )
        return any(found.raw_string == candidate for found in matcher)


class _Candidate(NamedTuple):
    start: int
    end: int


def find_phones(text: str, *, countries: Sequence[str], keep_last: int) -> Iterator[Span]:
    """Numbers with a country code, and those of the given countries without one."""
    questions = _Questions()
    found = list(_international(text, questions)) if "+" in text else []
    # What is found is taken: no part of it is a number of another country, or of a shorter form.
    left = _without(text, found) if countries else text
    for country in countries:
        more = list(_national(left, country.upper(), questions))
        left = _without(left, more)
        found += more
    for start, end in found:
        yield Span(start, end, "phone", digits_mask("phone", text[start:end], keep_last))


def _without(text: str, found: Sequence[_Candidate]) -> str:
    """The text with stars where something was found."""
    if not found:
        return text
    pieces: list[str] = []
    position = 0
    for start, end in found:
        pieces += (text[position:start], "*" * (end - start))
        position = end
    return "".join([*pieces, text[position:]])


def _international(text: str, questions: _Questions) -> Iterator[_Candidate]:
    for run in _INTERNATIONAL.finditer(text):
        if not begins_alone(text, run.start()):
            continue
        groups = _groups(text, run)
        # The number may be followed by others: its end is looked for from the longest.
        for last in range(len(groups) - 1, -1, -1):
            digits = sum(end - start for start, end in groups[: last + 1])
            end = groups[last][1]
            if digits < MIN_DIGITS or not ends_alone(text, end):
                continue
            if digits <= MAX_DIGITS and questions.ask(text[run.start() : end], None):
                yield _Candidate(run.start(), end)
                break


def _national(text: str, country: str, questions: _Questions) -> Iterator[_Candidate]:
    for run in _NATIONAL.finditer(text):
        groups = _groups(text, run)
        first = 0
        while first < len(groups):
            last = _national_from(text, groups, first, country, questions)
            if last is not None:
                yield _Candidate(_opened(text, groups[first][0]), groups[last][1])
            first = first + 1 if last is None else last + 1


def _national_from(
    text: str, groups: list[tuple[int, int]], first: int, country: str, questions: _Questions
) -> int | None:
    """The last group of the number that begins with this one; the longest number counts."""
    start = groups[first][0]
    if not begins_alone(text, start) or is_fraction(text, start) or text[start - 1 : start] == "+":
        return None
    digits, ends = 0, []
    for index in range(first, len(groups)):
        digits += groups[index][1] - groups[index][0]
        if digits > MAX_DIGITS:
            break
        if digits >= MIN_DIGITS:
            ends.append(index)
    for last in reversed(ends):
        end = groups[last][1]
        candidate = text[_opened(text, start) : end]
        if (
            ends_alone(text, end)
            and not _NO_NUMBER.fullmatch(candidate)
            and not is_in_uuid(text, start, end)
            and questions.ask(candidate, country)
        ):
            return last
    return None


def _opened(text: str, start: int) -> int:
    """Where a number begins, with the bracket around its area code."""
    return start - 1 if text[start - 1 : start] == "(" else start


def _groups(text: str, run: re.Match[str]) -> list[tuple[int, int]]:
    return [group.span() for group in _GROUP.finditer(text, *run.span())]
