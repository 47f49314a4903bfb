"""Names that say that what they name is a secret."""

import re
from itertools import pairwise
from typing import Final

_SECRET_WORDS: Final = frozenset(
    {
        *("password", "passwd", "passphrase", "secret", "token", "apikey", "credential"),
        *("authorization", "bearer", "cookie", "ssn", "pin", "privatekey", "accesskey"),
    }
)
_PAYMENT_WORDS: Final = frozenset({"cvv", "cvc", "otp", "iban", "cardnumber", "creditcard"})
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


def is_secret_name(name: str) -> bool:
    """Whether a name has a word for a secret in it: ``api_key``, ``accessToken``, ``secrets``."""
    return not _SECRET_WORDS.isdisjoint(_words(name))


def is_sensitive_name(name: str) -> bool:
    """Whether a name has a word for a secret or for a means of payment in it."""
    return not (_SECRET_WORDS | _PAYMENT_WORDS).isdisjoint(_words(name))


def _words(name: str) -> list[str]:
    words = [_singular(word.lower()) for word in _WORD.findall(name)]
    return [*words, *(a + b for a, b in pairwise(words))]


def _singular(word: str) -> str:
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word
