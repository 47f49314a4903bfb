"""Tools that are gated by address and arguments."""

from app import tool


@tool
def stamp(copies: int = 1) -> str:
    """Stamp so many copies."""
    return f"{copies} stamped"


@tool
def ring_bell() -> str:
    """Ring the bell on the desk."""
    return "ding"
