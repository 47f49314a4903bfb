"""Which characters are taken out of texts, and where some of them mean something and stay.

What goes are the Default_Ignorable_Code_Points of the Unicode Character Database (UAX 44), which
are shown as nothing and which a model reads all the same; the controls that a terminal obeys; and
what changes the order in which text is shown. See UTS 39 and UTS 55 (source code), UAX 31 section
2.3 (where joiners are needed), UTS 51 (emoji), CVE-2021-42574 ("Trojan Source"), and "ASCII
smuggling", which writes instructions in tag characters or variation selectors.

Code points are written as in Unicode's data files: ``202A-202E 2066``.
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple


class Kind(NamedTuple):
    """Characters that are taken out for one reason."""

    points: str
    why: str


ALWAYS: Final[Mapping[str, Kind]] = {
    # Tab, line feed, form feed, carriage return and next line (0085) lay text out, and stay.
    "controls": Kind("0000-0008 000B 000E-001F 007F 0080-0084 0086-009F", "a terminal obeys them"),
    "bidirectional controls": Kind(
        "061C 200E-200F 202A-202E 2066-2069", "text is shown in another order than it has"
    ),
    "zero-width and invisible characters": Kind(
        "00AD 200B 2060-2065 206A-206F FEFF FFF0-FFF8", "nobody sees them; they split words"
    ),
    "fillers": Kind("115F-1160 17B4-17B5 3164 FFA0", "letters that are shown as nothing"),
    "annotations and notation": Kind(
        "FFF9-FFFB 1BCA0-1BCA3 1D173-1D17A", "marks for a program, with no meaning in plain text"
    ),
    "tags that spell nothing": Kind("E0000-E001F E0080-E00FF E01F0-E0FFF", "invisible"),
}
"""What goes wherever it stands."""

UNLESS_NEEDED: Final[Mapping[str, Kind]] = {
    "joiners": Kind("200C-200D", "they split words unseen, or carry bits"),
    "grapheme joiner": Kind("034F", "it splits words unseen"),
    "Mongolian selectors and separator": Kind("180B-180F", "invisible after other letters"),
    "variation selectors": Kind("FE00-FE0F E0100-E01EF", "a run of them carries any bytes unseen"),
    "tags": Kind("E0020-E007F", "they spell ASCII unseen"),
}
"""What goes except where ``STAYS`` has a place for it."""


def ranges(points: str) -> list[tuple[int, int]]:
    """The first and last of each range of code points."""
    pairs = (part.partition("-") for part in points.split())
    return [(int(first, 16), int(last or first, 16)) for first, _, last in pairs]


def members(*points: str) -> str:
    """Code points as the inside of a regular expression's ``[...]``."""
    return "".join(
        f"\\U{first:08x}-\\U{last:08x}" for part in points for first, last in ranges(part)
    )


ALWAYS_GO: Final = members(*(kind.points for kind in ALWAYS.values()))
MAY_STAY: Final = members(*(kind.points for kind in UNLESS_NEEDED.values()))


def _others() -> tuple[str, str]:
    """All other characters from U+0080 on: those of 16 bits, and the rest."""
    kinds = (*ALWAYS.values(), *UNLESS_NEEDED.values())
    taken = [pair for kind in kinds for pair in ranges(kind.points) if pair[1] > 0x7F]
    gaps, following = [], 0x80
    for first, last in sorted([*taken, (0x10000, 0xFFFF), (0x110000, 0x110000)]):
        gaps.append((following, first - 1))
        following = last + 1
    gaps = [gap for gap in gaps if gap[0] <= gap[1]]
    return (
        _listed([gap for gap in gaps if gap[0] <= 0xFFFF]),
        _listed([gap for gap in gaps if gap[0] > 0xFFFF]),
    )


def _listed(pairs: list[tuple[int, int]]) -> str:
    return members(" ".join(f"{first:X}-{last:X}" for first, last in pairs))


# Stretches of one width are found much faster than single characters of any.
PLAIN: Final = re.compile("(?:[\t\n\f\r -~]++|[{}]++|[{}]++)*+".format(*_others()))
"""Fits as a whole a text in which nothing has to go and nothing has to be looked at closely."""

# Cursive scripts, and those that build clusters of consonants. There a joiner tells words apart.
_JOINING: Final = members(
    "0600-0603 0620-06FF 0700-077F 07C0-07FF 0840-08FF FB50-FDFF FE70-FEFC",  # Arabic and kin
    "0900-0DFF 1CD0-1CFF A8E0-A8FF",  # India and Sri Lanka
    "0F00-0FFF 1000-109F 1700-177F 1780-17B3 17B6-17FF 1A20-1AAF 1B00-1C4F",  # South-East Asia
    "1807 180A 1820-18AA A840-A87F A980-A9DF AA60-AA7F AAE0-AAFF ABC0-ABFF",
    "10AC0-10AFF 10B80-10BAF 10D00-10D3F 10F30-10F6F 11000-11FFF 1E900-1E95F",
)
# What has emoji presentation, or is part of an emoji of several parts (UTS 51).
_EMOJI: Final = members(
    "00A9 00AE 203C 2049 2122 2139 2190-21FF 2300-23FF 24C2 25A0-27BF 2934-2935 2B00-2BFF",
    "3030 303D 3297 3299 1F000-1FAFF 1FC00-1FFFD",
)
_IDEOGRAPHS: Final = members("3400-4DBF 4E00-9FFF F900-FAFF 20000-3FFFD")
_MONGOLIAN: Final = members("1820-18AA")
_MARKS: Final = members("0300-034E 0350-036F 0591-05BD 05BF 05C1-05C2 05C4-05C5 05C7 064B-065F")
_THEN: Final = f"[{MAY_STAY}]*+"  # what goes does not part what belongs together

STAYS: Final[Mapping[str, str]] = {
    "the flag of a part of a country": (  # its ISO 3166-2 code in tags, as in Wales, gbwls
        "(?<=\U0001f3f4)[\U000e0061-\U000e007a]{2}"
        "[\U000e0030-\U000e0039\U000e0061-\U000e007a]{1,3}\U000e007f"
    ),
    "an emoji of several parts": f"(?<=[{_EMOJI}])[\ufe0e\ufe0f]?\u200d(?={_THEN}[{_EMOJI}])",
    "the presentation of an emoji": f"(?<=[{_EMOJI}])[\ufe0e\ufe0f]",
    "a keycap": f"(?<=[0-9#*])\ufe0f(?={_THEN}\u20e3)",
    "a joiner after a letter of a script that joins": f"(?<=[{_JOINING}])[\u200c\u200d]",
    "a joiner before one": f"[\u200c\u200d](?={_THEN}[{_JOINING}])",
    # Of the Ideographic Variation Database, UTS 37.
    "a variant of an ideograph": f"(?<=[{_IDEOGRAPHS}])[\ufe00-\ufe02\U000e0100-\U000e01ef]",
    # The others of StandardizedVariants.txt.
    "a variant of East Asian punctuation": (
        "(?<=[\u2018\u2019\u201c\u201d\u3001\u3002\uff01-\uff5e])[\ufe00\ufe01]"
    ),
    "a variant of a mathematical sign": "(?<=[\u2200-\u22ff\u2a00-\u2aff])\ufe00",
    "a variant of a letter": (  # Myanmar, Phags-pa, Manichaean; hieroglyphs
        "(?<=[\u1000-\u109f\ua840-\ua877\uaa60-\uaa7f\U00010ac0-\U00010aff])\ufe00"
        "|(?<=[\U00013000-\U000143ff])[\ufe00-\ufe06]"
    ),
    "the Mongolian vowel separator": (
        f"(?<=[{_MONGOLIAN}])[\u180b-\u180d\u180f]?\u180e(?={_THEN}[{_MONGOLIAN}])"
    ),
    "a Mongolian variant": f"(?<=[{_MONGOLIAN}])[\u180b-\u180d\u180f][\u200c\u200d]?",
    "a grapheme joiner between marks": f"(?<=[{_MARKS}])\u034f(?={_THEN}[{_MARKS}])",
}
"""Where a run of such characters begins with one of these, that much of it stays."""

KEPT: Final = re.compile("|".join(STAYS.values()))

DOUBTFUL: Final = re.compile(
    # What texts of Persian or Hindi and those with emoji are full of is passed over at once.
    f"[{MAY_STAY}]++(?<![{_JOINING}][\u200c\u200d])(?<![{_EMOJI}]\ufe0f)"
    f"(?<![{_EMOJI}]\u200d(?=[{_EMOJI}]))"
)
"""A run of what may stay; runs that surely stay as they are may be left out."""
