import base64
import struct
import zlib
from collections.abc import Iterator

import pytest

from tests.support.client import McpClient
from tools._png import FONT, GLYPH_HEIGHT, Canvas, text_width
from tools.render_chart import BAR, BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, render_chart, scale


def chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The parts of a PNG, whose checksums must be right."""
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    at = 8
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        kind, data = png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        assert png[at + 8 + length : at + 12 + length] == struct.pack(">I", zlib.crc32(kind + data))
        yield kind, data
        at += 12 + length


def pixels(png: bytes) -> list[bytes]:
    """The rows of an indexed PNG whose rows are not filtered."""
    parts = dict(chunks(png))
    assert list(parts) == [b"IHDR", b"PLTE", b"IDAT", b"IEND"]
    width, height, *form = struct.unpack(">IIBBBBB", parts[b"IHDR"])
    assert form == [8, 3, 0, 0, 0]
    raw = zlib.decompress(parts[b"IDAT"])
    assert len(raw) == height * (width + 1)
    rows = [raw[at : at + width + 1] for at in range(0, len(raw), width + 1)]
    assert {row[0] for row in rows} == {0}
    return [row[1:] for row in rows]


def bars(png: bytes) -> list[tuple[int, int]]:
    """Top and bottom of each bar, left to right, in pixels."""
    rows = pixels(png)
    found: list[tuple[int, int]] = []
    inside = False
    for x in range(LEFT, RIGHT):
        column = [y for y, row in enumerate(rows) if row[x] == BAR]
        if column and not inside:
            found.append((column[0], column[-1]))
        inside = bool(column)
    return found


def test_the_picture_is_a_png_of_the_size_that_is_told() -> None:
    rows = pixels(render_chart(values=[1, 2, 3]).data)

    assert len(rows) == HEIGHT
    assert {len(row) for row in rows} == {WIDTH}


def test_every_bar_is_as_high_as_its_value() -> None:
    values = [0.5, 1, 2, 4]

    heights = [bottom - top + 1 for top, bottom in bars(render_chart(values=values).data)]

    whole = BOTTOM - TOP
    assert heights == pytest.approx([whole * value / 4 for value in values], abs=1)


def test_a_negative_bar_hangs_from_the_zero_line() -> None:
    (above, below) = bars(render_chart(values=[1, -1]).data)

    middle = (TOP + BOTTOM) / 2
    assert above == pytest.approx((TOP, middle), abs=1)
    assert below == pytest.approx((middle, BOTTOM), abs=1)


@pytest.mark.parametrize("values", [[0.0], [0, 0, 0], [1e-300], [5e-324, -5e-324]])
def test_values_too_small_to_show_give_an_empty_chart(values: list[float]) -> None:
    assert bars(render_chart(values=values).data) == []


def test_a_hundred_values_give_a_hundred_bars() -> None:
    assert len(bars(render_chart(values=list(range(1, 101))).data)) == 100


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0, 9, [0, 2, 4, 6, 8, 10]),
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (0, 100, [0, 20, 40, 60, 80, 100]),
        (-0.7, 1.28, [-1, -0.5, 0, 0.5, 1, 1.5]),
        (-3, 0, [-3, -2.5, -2, -1.5, -1, -0.5, 0]),
        (0, 0, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (-1e12, 1e12, [-1e12, -5e11, 0, 5e11, 1e12]),
    ],
)
def test_the_scale_has_few_round_numbers(low: float, high: float, ticks: list[float]) -> None:
    assert scale(low, high) == pytest.approx(ticks)


@pytest.mark.parametrize("exponent", range(-9, 13))
@pytest.mark.parametrize("factor", [1, 1.01, 2.5, 3.3, 7, 9.99])
def test_the_scale_holds_every_value_and_its_labels_fit(factor: float, exponent: int) -> None:
    high = min(factor * 10.0**exponent, 1e12)
    for low in (0.0, -high, -high / 3):
        ticks = scale(low, high)
        labels = [f"{tick:g}" for tick in ticks]

        assert ticks[0] <= low and high <= ticks[-1] * (1 + 1e-9)
        assert 2 <= len(ticks) <= 9
        assert all(set(label) <= set(FONT) for label in labels)
        assert max(map(text_width, labels)) <= LEFT - 8
        assert len(set(labels)) == len(labels)


def test_every_character_has_a_form_of_its_own() -> None:
    forms = {}
    for character, rows in FONT.items():
        assert len(rows) == GLYPH_HEIGHT
        canvas = Canvas(3, GLYPH_HEIGHT, [(255, 255, 255), (0, 0, 0)])
        canvas.text(0, 0, character, 1, scale=1)
        forms[character] = b"".join(pixels(canvas.png()))
    assert len(set(forms.values())) == len(FONT)


@pytest.mark.parametrize(
    ("x", "y", "width", "height", "painted"),
    [
        (1, 1, 2, 1, 2),
        (-5, -5, 100, 100, 12),
        (3, 0, 5, 5, 3),
        (4, 0, 1, 1, 0),
        (0, 3, 1, 1, 0),
        (-3, 0, 2, 2, 0),
        (0, -3, 2, 2, 0),
        (0, 0, 0, 9, 0),
    ],
)
def test_a_rectangle_is_painted_as_far_as_the_canvas_goes(
    x: int, y: int, width: int, height: int, painted: int
) -> None:
    canvas = Canvas(4, 3, [(0, 0, 0), (9, 9, 9)])

    canvas.rectangle(x, y, width, height, 1)

    assert b"".join(pixels(canvas.png())).count(1) == painted


def test_the_served_result_is_one_image(served: McpClient) -> None:
    (block,) = served.call("render_chart", {"values": [3, -1, 2], "colour": "green"}).result[
        "content"
    ]

    assert (block["type"], block["mimeType"]) == ("image", "image/png")
    assert len(bars(base64.b64decode(block["data"], validate=True))) == 3


@pytest.mark.parametrize(
    "arguments",
    [{"values": []}, {"values": [1] * 101}, {"values": [1e13]}, {"values": [1], "colour": "red"}],
)
def test_what_cannot_be_drawn_is_refused(served: McpClient, arguments: dict[str, object]) -> None:
    assert served.call("render_chart", arguments).is_error
