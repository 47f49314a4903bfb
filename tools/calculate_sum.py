"""The smallest useful tool: two numbers in, a structured result out."""

import math
from typing import Annotated, Final, TypedDict

from pydantic import Field, WithJsonSchema

from app import ToolError, tool

# Integers stay integers, and the schema still says plain "number": pydantic's own schema of
# this union is an anyOf, which some hosts do not take.
Number = Annotated[int | float, WithJsonSchema({"type": "number"})]

# JSON readers that keep every number as a double are exact up to here (RFC 8259, section 6).
LARGEST_EXACT_INTEGER: Final = 2**53 - 1


class Sum(TypedDict):
    sum: Annotated[Number, Field(description="a + b.")]


@tool(
    title="Add two numbers",
    annotations={"read_only": True, "open_world": False},
)
def calculate_sum(
    a: Annotated[Number, Field(description="First number.")],
    b: Annotated[Number, Field(description="Second number.")],
) -> Sum:
    """Add two numbers. Integers add up exactly, other numbers as 64-bit floating point."""
    try:
        total = a + b
    except OverflowError:  # an integer that no float can hold, plus a float
        total = math.inf
    exact = not isinstance(total, int) or abs(total) <= LARGEST_EXACT_INTEGER
    if not (exact and math.isfinite(total)):
        raise ToolError(
            "The sum is too large for a JSON number: integers may reach "
            f"{LARGEST_EXACT_INTEGER}, other numbers about 1.8e308."
        )
    return {"sum": total}
