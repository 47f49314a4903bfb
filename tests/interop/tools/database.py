"""Parameters that clients repeat in HTTP headers."""

from typing import Annotated

from pydantic import BaseModel

from app import Header, tool


class Shard(BaseModel):
    """Where a query runs."""

    number: Annotated[int, Header("Shard")]
    replica: Annotated[bool, Header("Replica")] = False


@tool
def execute_sql(
    region: Annotated[str, Header("Region")],
    query: str,
    tenant: Annotated[str | None, Header("Tenant")] = None,
) -> dict[str, str | None]:
    """Tell where a query would run."""
    return {"region": region, "query": query, "tenant": tenant}


@tool
def execute_on_shard(shard: Shard, query: str) -> dict[str, str | int | bool]:
    """Tell on which shard a query would run."""
    return {"query": query, "shard": shard.number, "replica": shard.replica}
