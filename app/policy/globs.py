"""Patterns with ``*`` and ``?``, compiled to one regular expression."""

import fnmatch
import re
from collections.abc import Iterable


def compile_globs(patterns: Iterable[str]) -> re.Pattern[str]:
    """What matches a text that fits one of the patterns as a whole; the case of letters counts.

    ``*`` is any text, ``?`` any one character, and every other character is itself.
    """
    # fnmatch writes an expression that takes linear time; its [...] is not ours.
    literal = (pattern.replace("[", "[[]") for pattern in patterns)
    return re.compile("|".join(fnmatch.translate(pattern) for pattern in literal))
