"""Tools to switch on and off."""

from app import tool


@tool
def alpha() -> str:
    """Answer."""
    return "alpha"


@tool
def beta() -> str:
    """Answer."""
    return "beta"


@tool
def gamma() -> str:
    """Answer."""
    return "gamma"
