"""A slow tool: reports progress, can be cancelled, returns a file."""

import asyncio
import csv
import io
import random
from collections.abc import Iterator
from datetime import date, timedelta
from decimal import Decimal
from itertools import islice
from typing import Annotated, Final

from pydantic import Field

from app import ContentAnnotations, Context, EmbeddedResource, tool

MAX_ROWS: Final = 5_000  # some 190 KB of CSV, well under [execution] max_result_bytes
MAX_SECONDS: Final = 60.0
COLUMNS: Final = ("date", "order", "product", "units", "revenue")
PRICES: Final = {
    "Desk lamp": Decimal("34.90"),
    "Fountain pen": Decimal("24.50"),
    "Rain jacket": Decimal("119.00"),
}
FIRST_DAY: Final = date(2025, 1, 1)


@tool(
    title="Export a sales report",
    annotations={"read_only": True, "open_world": False},
    timeout_s=MAX_SECONDS + 30,
)
async def export_report(
    ctx: Context,
    rows: Annotated[int, Field(ge=1, le=MAX_ROWS, description="Number of data rows.")] = 200,
    steps: Annotated[
        int, Field(ge=1, le=100, description="How often to report progress on the way.")
    ] = 10,
    seconds: Annotated[
        float, Field(ge=0, le=MAX_SECONDS, description="How long it takes, as a slow source would.")
    ] = 5.0,
) -> list[str | EmbeddedResource]:
    """Export made-up sales as a CSV file, with a summary. Slow: it reports progress meanwhile."""
    steps = min(steps, rows)
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    source = _sales()
    revenue = Decimal(0)
    done = 0
    for step in range(1, steps + 1):
        # Cancelled here when the client leaves or the deadline passes; nothing is left behind.
        await asyncio.sleep(seconds / steps)
        until = rows * step // steps
        for row in islice(source, until - done):
            writer.writerow(row)
            revenue += row[-1]
        done = until
        ctx.progress(done, rows, f"{done} of {rows} rows")
    return [
        f"Exported {rows} rows with a revenue of {revenue} in total.",
        EmbeddedResource(
            uri="report://sales.csv",
            text=file.getvalue(),
            mime_type="text/csv",
            annotations=ContentAnnotations(audience=("user",)),
        ),
    ]


def _sales() -> Iterator[tuple[str, int, str, int, Decimal]]:
    """Rows without end, the same ones every time."""
    chance = random.Random(2025)  # noqa: S311  # sample data, not a secret
    number = 0
    while True:
        number += 1
        product = chance.choice(list(PRICES))
        units = chance.randint(1, 5)
        day = FIRST_DAY + timedelta(days=number // 8)
        yield day.isoformat(), number, product, units, units * PRICES[product]
