"""Numbers that a state gives its people, by country.

How a number is written is said here; whether its check digits, dates and regions are right is
asked of python-stdnum. A number without check digits is taken only as it is written on paper, with
its separators: otherwise every amount of as many digits would be one.
"""

import importlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, cast

from app.guards.spans import (
    Span,
    begins_alone,
    digits_mask,
    ends_alone,
    is_fraction,
    is_in_uuid,
)


class _Id(NamedTuple):
    """One kind of number.

    Attributes:
        written: How it is written. A group, if there is one, is the number itself.
        judge: The module of ``stdnum`` that judges it; None if its form is all there is to it.
    """

    written: re.Pattern[str]
    judge: str | None


def _id(written: str, judge: str | None, flags: int = 0) -> _Id:
    return _Id(re.compile(written, re.ASCII | flags), judge)


# Letters of both cases one by one: a choice of first characters is searched for fastest.
_SOCIAL: Final = (
    r"(?:[Ss][Ss][Nn]|[Ii][Tt][Ii][Nn]|[Ss]ocial[ _-]?[Ss]ecurity(?:[ _-]?(?:[Nn]umber|[Nn]o))?)"
    r"[\s\"'#:=.]{1,6}([0-9]{9})"
)
_DIGITS: Final = re.compile(r"[0-9]*")
_TABLE: Final[Mapping[str, tuple[_Id, ...]]] = {
    "ar": (_id(r"[0-9]{2}\.[0-9]{3}\.[0-9]{3}", "ar.dni"),),
    "at": (_id(r"[0-9]{4} ?[0-9]{6}", "at.vnr"),),
    "au": (_id(r"[0-9]{3} ?[0-9]{3} ?[0-9]{3}", "au.tfn"),),
    "be": (_id(r"[0-9]{2}[. ]?[0-9]{2}[. ]?[0-9]{2}[- ]?[0-9]{3}[. ]?[0-9]{2}", "be.nn"),),
    "bg": (_id(r"[0-9]{10}", "bg.egn"),),
    "br": (_id(r"[0-9]{3}\.?[0-9]{3}\.?[0-9]{3}-?[0-9]{2}", "br.cpf"),),
    "ca": (_id(r"[0-9]{3}[- ]?[0-9]{3}[- ]?[0-9]{3}", "ca.sin"),),
    "ch": (_id(r"756[. ]?[0-9]{4}[. ]?[0-9]{4}[. ]?[0-9]{2}", "ch.ssn"),),
    "cl": (_id(r"[0-9]{1,2}\.?[0-9]{3}\.?[0-9]{3}-[0-9Kk]", "cl.rut"),),
    "cn": (_id(r"[1-9][0-9]{16}[0-9Xx]", "cn.ric"),),
    "cz": (_id(r"[0-9]{6}/?[0-9]{4}|[0-9]{6}/[0-9]{3}", "cz.rc"),),
    "de": (_id(r"[1-9][0-9] ?[0-9]{3} ?[0-9]{3} ?[0-9]{3}", "de.idnr"),),
    "dk": (_id(r"[0-9]{6}-[0-9]{4}", "dk.cpr"),),
    "ee": (_id(r"[1-8][0-9]{10}", "ee.ik"),),
    "es": (
        _id(r"[0-9]{8}[- ]?[A-Z]", "es.dni", re.IGNORECASE),
        _id(r"[XYZ][- ]?[0-9]{7}[- ]?[A-Z]", "es.nie", re.IGNORECASE),
    ),
    "fi": (_id(r"[0-9]{6}[-+A-FU-Y][0-9]{3}[0-9A-Y]", "fi.hetu"),),
    "fr": (
        _id(
            r"[1-478] ?[0-9]{2} ?[0-9]{2} ?[0-9][0-9AB] ?[0-9]{3} ?[0-9]{3} ?[0-9]{2}",
            "fr.nir",
        ),
    ),
    "gb": (
        _id(
            r"(?!BG|GB|NK|KN|TN|NT|ZZ)[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z]"
            r" ?[0-9]{2} ?[0-9]{2} ?[0-9]{2} ?[A-D]",
            None,
        ),
        _id(r"[0-9]{3}[- ]?[0-9]{3}[- ]?[0-9]{4}", "gb.nhs"),
    ),
    "gr": (_id(r"[0-9]{11}", "gr.amka"),),
    "hr": (_id(r"[0-9]{11}", "hr.oib"),),
    "id": (_id(r"[0-9]{16}", "id.nik"),),
    "ie": (_id(r"[0-9]{7}[A-W][A-IW]?", "ie.pps"),),
    "il": (_id(r"[0-9]{8}-?[0-9]", "il.idnr"),),
    "in": (
        _id(r"[2-9][0-9]{3}[- ]?[0-9]{4}[- ]?[0-9]{4}", "in_.aadhaar"),
        _id(r"[A-Z]{3}[ABCFGHJLPT][A-Z][0-9]{4}[A-Z]", "in_.pan"),
    ),
    "is": (_id(r"[0-9]{6}-?[0-9]{4}", "is_.kennitala"),),
    "it": (
        _id(
            r"[A-Z]{6}[0-9LMNP-V]{2}[A-EHLMPRST][0-9LMNP-V]{2}[A-Z][0-9LMNP-V]{3}[A-Z]",
            "it.codicefiscale",
            re.IGNORECASE,
        ),
    ),
    "jp": (_id(r"[0-9]{4}[- ]?[0-9]{4}[- ]?[0-9]{4}", "jp.in_"),),
    "kr": (_id(r"[0-9]{6}-?[0-9]{7}", "kr.rrn"),),
    "lt": (_id(r"[1-6][0-9]{10}", "lt.asmens"),),
    "lv": (_id(r"[0-9]{6}-[0-9]{5}", "lv.pvn"),),
    "mx": (_id(r"[A-Z]{4}[0-9]{6}[HM][A-Z]{5}[0-9A-Z][0-9]", "mx.curp"),),
    "my": (_id(r"[0-9]{6}-[0-9]{2}-[0-9]{4}", "my.nric"),),
    "nl": (_id(r"[0-9]{3} ?[0-9]{3} ?[0-9]{3}|[0-9]{4}\.?[0-9]{2}\.?[0-9]{3}", "nl.bsn"),),
    "no": (_id(r"[0-9]{6} ?[0-9]{5}", "no.fodselsnummer"),),
    "pl": (_id(r"[0-9]{11}", "pl.pesel"),),
    "pt": (_id(r"[0-9]{3} ?[0-9]{3} ?[0-9]{3}", "pt.nif"),),
    "ro": (_id(r"[1-9][0-9]{12}", "ro.cnp"),),
    "ru": (_id(r"[0-9]{12}", "ru.inn"),),
    "se": (_id(r"(?:[0-9]{2})?[0-9]{6}[-+]?[0-9]{4}", "se.personnummer"),),
    "si": (_id(r"[0-9]{13}", "si.emso"),),
    "sk": (_id(r"[0-9]{6}/?[0-9]{4}|[0-9]{6}/[0-9]{3}", "sk.rc"),),
    "th": (_id(r"[1-8](-?)[0-9]{4}-?[0-9]{5}-?[0-9]{2}-?[0-9]", "th.pin"),),
    "tr": (_id(r"[1-9][0-9]{10}", "tr.tckimlik"),),
    "ua": (_id(r"[0-9]{10}", "ua.rntrc"),),
    "us": (
        _id(r"[0-9]{3}([- ])[0-9]{2}\1[0-9]{4}", "us.ssn"),
        _id(r"9[0-9]{2}([- ])[0-9]{2}\1[0-9]{4}", "us.itin"),
        _id(_SOCIAL, None),
    ),
    "za": (_id(r"[0-9]{6} ?[0-9]{4} ?[0-9]{2} ?[0-9]", "za.idnr"),),
}

LOCALES: Final = tuple(sorted(_TABLE))
"""The countries whose numbers are known."""


def find_national_ids(text: str, *, countries: Sequence[str], keep_last: int) -> Iterator[Span]:
    """Numbers of people in the given countries."""
    for country in countries:
        for each in _TABLE[country]:
            for start, end in _found(text, each):
                mask = digits_mask("national_id", text[start:end], keep_last)
                yield Span(start, end, "national_id", mask)


def _found(text: str, each: _Id) -> Iterator[tuple[int, int]]:
    position = 0
    while (found := each.written.search(text, position)) is not None:
        start, end = found.span(1) if each.judge is None and found.lastindex else found.span()
        if (
            begins_alone(text, start)
            and text[start - 1 : start] != "+"  # a phone number
            and ends_alone(text, end)
            and not is_fraction(text, start)
            and not is_in_uuid(text, start, end)
            and (each.judge is None or _judge(each.judge)(text[start:end]))
        ):
            yield start, end
            position = end
        else:
            # A number may begin within what was none, but not within a row of digits.
            position = max(found.start() + 1, _end_of_digits(text, found.start()))


def _end_of_digits(text: str, start: int) -> int:
    row = _DIGITS.match(text, start)
    assert row is not None  # it may be empty
    return row.end()


@lru_cache
def _judge(module: str) -> Callable[[str], bool]:
    # Imported by whoever has a number to look at: there are many modules, and each has a few.
    return cast(Callable[[str], bool], importlib.import_module(f"stdnum.{module}").is_valid)
