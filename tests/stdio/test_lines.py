"""Lines are the same however they were written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.stdio.lines import Line, Lines

MAX = 5


def read(*pieces: bytes) -> list[Line]:
    lines = Lines(MAX)
    found = [line for piece in pieces for line in lines.feed(piece)]
    return found + lines.end()


@pytest.mark.parametrize(
    ("sent", "lines"),
    [
        (b"", []),
        (b"a\nb\n", [b"a", b"b"]),
        (b"a\nb", [b"a", b"b"]),
        (b"a\r\n", [b"a\r"]),
        (b"\n\na\n", [b"", b"", b"a"]),
        (b"12345\n", [b"12345"]),
        (b"123456\na\n", [None, b"a"]),
        (b"123456", [None]),
        (b"123456\n123456\n", [None, None]),
        (b"123456" * 10 + b"\n\n", [None, b""]),
    ],
)
def test_lines_end_with_a_newline_and_have_a_limit(sent: bytes, lines: list[Line]) -> None:
    assert read(sent) == lines


@given(st.text("ab\n", max_size=40), st.lists(st.integers(0, 40), max_size=8))
def test_how_a_line_is_split_over_writes_changes_nothing(text: str, cuts: list[int]) -> None:
    sent = text.encode()
    places = sorted(min(cut, len(sent)) for cut in cuts)
    pieces = [sent[a:b] for a, b in zip([0, *places], [*places, len(sent)], strict=True)]

    assert read(*pieces) == read(sent)
    rest = text.removesuffix("\n") if text.endswith("\n") else text
    whole = [line if len(line) <= MAX else None for line in rest.encode().split(b"\n")]
    assert read(sent) == (whole if text else [])


def test_of_a_line_that_is_too_long_nothing_is_held() -> None:
    lines = Lines(MAX)
    lines.feed(b"123456")
    for _ in range(100):
        assert lines.feed(b"x" * 1000) == []
    assert len(lines._held) == 0
    assert lines.feed(b"\nok\n") == [b"ok"]
