"""``[metrics]``: what is counted, and how finely."""

from typing import Annotated, Final

from pydantic import Field, field_validator

from app.settings.base import Section

MAX_BUCKETS: Final = 50
BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

MAX_TOOLS: Final = 1000


class MetricsSettings(Section):
    buckets: Annotated[
        tuple[float, ...],
        Field(description="Upper bounds of the histogram of response times in seconds, in order."),
    ] = BUCKETS
    max_tools: Annotated[
        int,
        Field(
            ge=1,
            le=100_000,
            description="Names of tools that get series of their own, until the process ends; "
            "those that come later are counted together, as `(other)`.",
        ),
    ] = MAX_TOOLS

    @field_validator("buckets")
    @classmethod
    def _buckets_rise(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        if any(not 0 < bound < 1e6 for bound in value) or list(value) != sorted(set(value)):
            raise ValueError("must be numbers above 0 and below 1,000,000, each above the last")
        if not 1 <= len(value) <= MAX_BUCKETS:
            raise ValueError(f"must be 1 to {MAX_BUCKETS} numbers")
        return value
