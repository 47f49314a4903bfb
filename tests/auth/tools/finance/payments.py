"""Tools that most people must not know of."""

from typing import Annotated

from app import Header, tool


@tool
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


@tool
def send(region: Annotated[str, Header("Region")], amount: int) -> str:
    """Send an amount to a region."""
    return f"sent {amount} to {region}"
