"""SQL on sample databases: a mirrored parameter, a lifespan, and work in a thread."""

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Final, Literal, get_args

from pydantic import BaseModel, Field

from app import Context, Header, tool

from ._sqlite import Cell, Database, build, run_query

DATA: Final = Path(__file__).parent / "data"
MAX_SECONDS: Final = 5.0
MARGIN_S: Final = 0.2
"""Stop this long before the deadline, so that the reason still reaches the model."""

Region = Literal["asia-east1", "eu-west1", "us-west1"]


class QueryResult(BaseModel):
    columns: Annotated[list[str], Field(description="Column names.")]
    rows: Annotated[list[list[Cell]], Field(description="Values in the order of the columns.")]
    row_count: Annotated[int, Field(description="Number of rows.")]


@asynccontextmanager
async def lifespan() -> AsyncIterator[Mapping[str, Database]]:
    """Build the databases once, before the tool is served. They live in memory alone."""
    yield {region: build(DATA / f"{region}.sql") for region in get_args(Region)}


@tool(
    title="Query a sample database",
    annotations={"read_only": True, "open_world": False},
)
def execute_sql(
    ctx: Context,
    region: Annotated[
        Region,
        # Clients repeat the value as Mcp-Param-Region, so that a load balancer can route by it.
        Header("Region"),
        Field(description="Which region's database to ask."),
    ],
    query: Annotated[
        str, Field(min_length=1, max_length=10_000, description="One SELECT, in SQLite's dialect.")
    ],
) -> QueryResult:
    """Query the sample shop of a region with one read-only SQL statement.

    Every region has the same tables, with amounts in cents and dates as YYYY-MM-DD text:
    users(id, name, email, city, joined_on)
    products(id, name, category, price_cents)
    orders(id, user_id, ordered_on, status)
    order_items(order_id, product_id, quantity)
    order_totals(order_id, user_id, total_cents)
    """
    databases: Mapping[str, Database] = ctx.lifespan
    end = time.monotonic() + MAX_SECONDS

    def stop() -> str | None:
        if ctx.cancelled:
            return "the caller has gone."
        if time.monotonic() > end or ctx.remaining_s < MARGIN_S:
            return "it took too long. Narrow it with WHERE, or join fewer rows."
        return None

    answer = run_query(databases[region], query, stop=stop)
    return QueryResult(columns=answer.columns, rows=answer.rows, row_count=len(answer.rows))
