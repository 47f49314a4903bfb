"""Patterns over names: two wildcards, and every other character is itself."""

import time

from hypothesis import given
from hypothesis import strategies as st

from app.policy.globs import compile_globs
from tests.policy.reference import is_like
from tests.support.cases import rows

ALPHABET = "aB.[]!-*?\n"


@rows(
    "pattern, text, fits",
    ("a name is itself", "finance.pay", "finance.pay", True),
    ("and nothing longer", "finance.pay", "finance.payout", False),
    ("the star is any text", "finance.*", "finance.eu.pay", True),
    ("or none", "finance.*", "finance.", True),
    ("a dot is a dot", "finance.*", "financeXpay", False),
    ("a question mark is one character", "pay?", "pay1", True),
    ("and not none", "pay?", "pay", False),
    ("and not two", "pay?", "pay12", False),
    ("the case of letters counts", "Pay", "pay", False),
    ("brackets are brackets", "[ab]", "a", False),
    ("as they stand", "[ab]", "[ab]", True),
    ("a star alone is everything", "*", "", True),
    ("a line end is no end", "pay", "pay\n", False),
)
def test_a_pattern(pattern: str, text: str, fits: bool) -> None:
    assert (compile_globs([pattern]).match(text) is not None) is fits


@given(st.lists(st.text(ALPHABET, max_size=6), min_size=1, max_size=3), st.text(ALPHABET[:7]))
def test_patterns_agree_with_a_matcher_that_is_like(patterns: list[str], text: str) -> None:
    expected = any(is_like(pattern, text) for pattern in patterns)
    assert (compile_globs(patterns).match(text) is not None) is expected


def test_many_stars_take_no_time() -> None:
    started = time.perf_counter()
    assert compile_globs(["*a" * 60 + "b"]).match("a" * 128) is None
    assert time.perf_counter() - started < 1
