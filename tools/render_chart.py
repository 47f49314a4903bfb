"""A picture as the result: a bar chart of numbers."""

import math
from typing import Annotated, Final, Literal

from pydantic import Field

from app import Image, tool

from ._png import GLYPH_HEIGHT, Canvas, Colour, text_width

WIDTH: Final = 640
HEIGHT: Final = 360
LEFT, RIGHT, TOP, BOTTOM = 72, 624, 16, 344
"""Edges of the plot; the labels of the scale stand left of it."""
MOST_STEPS: Final = 6
SMALLEST_SPAN: Final = 1e-9

COLOURS: Final[dict[str, Colour]] = {
    "blue": (37, 99, 168),
    "green": (46, 125, 80),
    "orange": (201, 108, 28),
}
BACKGROUND, GRID, INK, BAR = range(4)

Value = Annotated[float, Field(ge=-1e12, le=1e12)]


@tool(
    title="Render a bar chart",
    annotations={"read_only": True, "open_world": False},
)
def render_chart(
    values: Annotated[
        list[Value],
        Field(min_length=1, max_length=100, description="Heights of the bars, left to right."),
    ],
    colour: Annotated[
        Literal["blue", "green", "orange"], Field(description="Colour of the bars.")
    ] = "blue",
) -> Image:
    """Draw a bar chart of numbers, with a scale, as a PNG of 640 x 360 pixels."""
    canvas = Canvas(
        WIDTH, HEIGHT, [(255, 255, 255), (222, 222, 222), (60, 60, 60), COLOURS[colour]]
    )
    ticks = scale(min(0.0, *values), max(0.0, *values))

    def y_of(value: float) -> int:
        share = (value - ticks[0]) / (ticks[-1] - ticks[0])
        return round(BOTTOM - share * (BOTTOM - TOP))

    for tick in ticks:
        canvas.rectangle(LEFT, y_of(tick), RIGHT - LEFT, 1, GRID)
        label = f"{tick:g}"
        canvas.text(LEFT - 8 - text_width(label), y_of(tick) - GLYPH_HEIGHT, label, INK)
    slot = (RIGHT - LEFT) / len(values)
    gap = slot * 0.2
    for index, value in enumerate(values):
        left = round(LEFT + index * slot + gap / 2)
        right = round(LEFT + (index + 1) * slot - gap / 2)
        top, bottom = sorted((y_of(value), y_of(0)))
        canvas.rectangle(left, top, max(1, right - left), bottom - top, BAR)
    canvas.rectangle(LEFT, y_of(0), RIGHT - LEFT, 1, INK)
    return Image(canvas.png())


def scale(low: float, high: float) -> list[float]:
    """Round numbers from `low` or below to `high` or above, at most eight, evenly spaced."""
    if high - low < SMALLEST_SPAN:
        high = low + 1.0
    raw = (high - low) / MOST_STEPS
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [number * step for number in range(first, last + 1)]
