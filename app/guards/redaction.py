"""Takes personal data and secrets out of texts and of JSON data."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, get_args

from app.guards.cards import find_cards
from app.guards.emails import find_emails
from app.guards.members import distinct
from app.guards.national_ids import LOCALES, find_national_ids
from app.guards.phones import find_phones
from app.guards.secret_shapes import find_secrets, is_secret_value, names_secret
from app.guards.spans import NAMES, Kind, Span, apply

_Finder = Callable[[str], Iterable[Span]]

KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
MAX_KEPT: Final = 4
"""What may stay of a number: of payment cards no more than this is shown to anybody."""
_MOST_ROUNDS: Final = 4
_WORD: Final = re.compile(r"[a-z_]{0,16}")
"""Most keys and many values: too short for every key that has no digit, capital or sign."""
_LEAST_NUMBER: Final = 10_000_000
"""Whole numbers below are never looked at: no card and no national id is as short."""


class Redactor:
    """Puts masks in the place of personal data and secrets.

    It has no state and no clock, and can be sent to another process. What it masks once it does
    not mask again.

    Args:
        kinds: What is looked for.
        locales: Countries (ISO 3166 alpha-2, lower case) whose national ids, and whose phone
            numbers without a country code, are looked for.
        keep_last: How many digits stay of cards, phone numbers and national ids.

    Raises:
        ValueError: For a kind or a country that is not known; it names those that are.
    """

    def __init__(
        self, kinds: Sequence[Kind], *, locales: Sequence[str] = (), keep_last: int = MAX_KEPT
    ) -> None:
        for name, given, known in (("kind", kinds, KINDS), ("locale", locales, LOCALES)):
            for each in given:
                if each not in known:
                    raise ValueError(f"unknown {name} {each!r}; known: {', '.join(known)}")
        if not 0 <= keep_last <= MAX_KEPT:
            raise ValueError(f"keep_last is {keep_last}; it must be 0 to {MAX_KEPT}")
        countries = tuple(dict.fromkeys(locales))
        finders: dict[Kind, _Finder] = {
            "secret": find_secrets,
            "email": find_emails,
            "card": partial(find_cards, keep_last=keep_last),
            "phone": partial(find_phones, countries=countries, keep_last=keep_last),
            "national_id": partial(find_national_ids, countries=countries, keep_last=keep_last),
        }
        self._finders = {kind: finders[kind] for kind in KINDS if kind in kinds}

    def text(self, text: str) -> str:
        """The text with masks; the very same object where nothing was found."""
        if _WORD.fullmatch(text):
            return text
        return self._masked(text, self._finders.values())

    def data(self, value: Any) -> Any:
        """Plain JSON data with masks; the very same object where nothing was found.

        Every string and every key of an object is looked at as ``text`` does. A whole number that
        is a card or a national id becomes its masked text, and so does a string whose key says
        that it is a secret.
        """
        match value:
            case str():
                return self.text(value)
            case bool() | float() | None:
                return value
            case int():
                return self._number(value)
            case Mapping():
                return self._object(value)
            case list() | tuple():
                return _same_or_new(value, [self.data(each) for each in value])
        return value

    def _number(self, value: int) -> Any:
        if not _LEAST_NUMBER <= value < 10**19:
            return value
        text = str(value)
        # A number alone is more often a count or an id than that of a phone.
        kinds = self._finders.keys() & {"card", "national_id"}
        masked = self._masked(text, [self._finders[kind] for kind in kinds])
        return value if masked is text else masked

    @staticmethod
    def _masked(text: str, finders: Collection[_Finder]) -> str:
        # What masks have brought together may be something in its turn. It hardly ever is.
        for _ in range(_MOST_ROUNDS):
            before = text
            text = apply(text, (span for find in finders for span in find(before)))
            if text is before:
                break
        return text

    def _object(self, value: Mapping[str, Any]) -> Any:
        keys = [self.text(key) for key in value]
        values = [self._member(key, each) for key, each in value.items()]
        if all(map(_is, value, keys)) and all(map(_is, value.values(), values)):
            return value
        return dict(zip(distinct(value, keys, "{} {}"), values, strict=True))

    def _member(self, key: str, value: Any) -> Any:
        named = names_secret(key) if "secret" in self._finders else None
        if named is None:
            return self.data(value)
        sure = named == "sure"
        if isinstance(value, str) and is_secret_value(value, sure=sure):
            return NAMES["secret"]
        if isinstance(value, list | tuple):
            return _same_or_new(value, [self._member(key, each) for each in value])
        return self.data(value)


def _is(one: object, other: object) -> bool:
    return one is other


def _same_or_new(value: Sequence[Any], items: list[Any]) -> Any:
    return value if all(map(_is, value, items)) else items
