"""Structured results and the two ways to fail."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from app import ToolError, tool


@dataclass
class Division:
    """A division with remainder."""

    quotient: int
    remainder: int


@tool(title="Divide", annotations={"read_only": True, "idempotent": True})
def divide(
    dividend: Annotated[int, Field(description="What is divided.")],
    divisor: Annotated[int, Field(description="What it is divided by; not zero.")],
) -> Division:
    """Divide one whole number by another."""
    if divisor == 0:
        raise ToolError("divisor must not be zero")
    return Division(*divmod(dividend, divisor))


@tool
def primes(below: Annotated[int, Field(ge=0, le=1000)]) -> list[int]:
    """List the prime numbers below a bound."""
    return [n for n in range(2, below) if all(n % d for d in range(2, n))]


@tool
def crash() -> str:
    """Fail in a way that nobody foresaw."""
    raise RuntimeError("the password is swordfish")
