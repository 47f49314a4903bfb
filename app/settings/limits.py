"""``[limits]``: how much at once, and how many in a while."""

from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from app.settings.base import Seconds, Section
from app.settings.policies import Name

Bucket = Literal["tool", "user", "tenant", "user-tool"]


class RateLimit(Section):
    """``rate_limit`` of a tool, and an entry of ``list_rates``."""

    bucket: Annotated[
        Bucket,
        Field(
            description="Who shares the capacity: all callers of one tool, each caller, each "
            "tenant, or each caller with each tool."
        ),
    ]
    capacity: Annotated[
        int, Field(ge=1, le=1_000_000, description="So many are let through in any `period_s`.")
    ]
    period_s: Annotated[Seconds, Field(description="Length of the sliding window in seconds.")]


class ToolRate(RateLimit):
    """One entry of ``[[limits.rates]]``. All that name a tool hold, each by itself."""

    tools: Annotated[
        tuple[Name, ...],
        Field(
            min_length=1,
            description="Names of tools; `*` and `?` stand for any text and any character. What "
            "they share, they share with each other.",
        ),
    ]


class LimitsSettings(Section):
    concurrent_calls: Annotated[
        int, Field(ge=1, le=1_000_000, description="Calls that run at once; more get 503.")
    ] = 1000
    listen_streams: Annotated[
        int, Field(ge=0, le=1_000_000, description="Listen streams of one process; more get 503.")
    ] = 10_000
    # Ten a second for a whole minute: an agent, which waits for its model between calls, stays
    # far below; a client that calls in a loop has used it up within a second or two.
    rates: Annotated[
        tuple[ToolRate, ...],
        Field(description="How many calls in a while; more get 429. `[]`: as many as come."),
    ] = (ToolRate(tools=("*",), bucket="user", capacity=600, period_s=60),)
    list_rates: Annotated[
        tuple[RateLimit, ...],
        Field(description="How many tools/list requests in a while, by `user` or `tenant`."),
    ] = (RateLimit(bucket="user", capacity=600, period_s=60),)
    when_uncounted: Annotated[
        Literal["refuse", "admit"],
        Field(
            description="What happens to a call that cannot be counted, because the store is "
            "full or cannot be reached: it gets 503, or it runs."
        ),
    ] = "refuse"

    @field_validator("list_rates")
    @classmethod
    def _lists_have_no_tool(cls, value: tuple[RateLimit, ...]) -> tuple[RateLimit, ...]:
        for rate in value:
            if rate.bucket not in {"user", "tenant"}:
                raise ValueError(
                    f'a list has no tool: its bucket is "user" or "tenant", not "{rate.bucket}"'
                )
        return value

    @model_validator(mode="after")
    def _each_counts_by_itself(self) -> Self:
        # Capacity is no part of the name of what is counted, so that a new one keeps the count.
        _refuse_twice("rates", [(rate.tools, rate.bucket, rate.period_s) for rate in self.rates])
        _refuse_twice("list_rates", [(rate.bucket, rate.period_s) for rate in self.list_rates])
        return self


def _refuse_twice(key: str, counted: Sequence[object]) -> None:
    for number, each in enumerate(counted):
        if each in counted[:number]:
            raise ValueError(
                f"{key}: entries {counted.index(each) + 1} and {number + 1} differ in nothing "
                "but the capacity; keep the smaller one"
            )
