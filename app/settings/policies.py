"""``[[policies]]``: who may call what, when, from where and with which arguments."""

import ipaddress
import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self
from zoneinfo import ZoneInfo

from pydantic import Field, field_validator, model_validator

from app.settings.base import Section

SCOPE_TOKEN: Final = re.compile(r"[\x21\x23-\x5B\x5D-\x7E]{1,200}\Z")
"""RFC 6749, section 3.3; it stands in a header between quotes."""

ScopeToken = Annotated[str, Field(pattern=r"^[\x21\x23-\x5B\x5D-\x7E]+$", max_length=200)]
Name = Annotated[str, Field(min_length=1, max_length=200)]

DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_TIME: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]|24(?=:00)):([0-5]\d)\Z")


class Requirement(Section):
    """What a caller must have. What is left out is not asked for."""

    scopes: Annotated[tuple[ScopeToken, ...], Field(description="All of them.")] = ()
    roles: Annotated[tuple[Name, ...], Field(description="At least one of them.")] = ()
    clearance: Annotated[str | None, Field(description="This one or a higher one.")] = None
    tenants: Annotated[tuple[Name, ...], Field(description="The caller acts for one of them.")] = ()


class Conditions(Section):
    """When and from where."""

    time: Annotated[
        str | None,
        Field(description="As 09:00-17:00; from the first instant to before the second."),
    ] = None
    days: Annotated[
        tuple[str, ...], Field(description="As mon-fri or sat; of the day on which it begins.")
    ] = ()
    timezone: Annotated[str, Field(description="Zone of time and days, as Europe/Berlin.")] = "UTC"
    networks: Annotated[
        tuple[str, ...],
        Field(description="Addresses or networks; they gate the call and never the list."),
    ] = ()

    @property
    def has_hours(self) -> bool:
        """Whether they hold at some times only."""
        return self.time is not None or bool(self.days)

    @field_validator("time")
    @classmethod
    def _time_is_a_window(cls, value: str | None) -> str | None:
        if value is not None and not _TIME.match(value):
            raise ValueError("must be written as 09:00-17:00, on a clock of 24 hours")
        if value is not None and value[:5] == value[6:]:
            raise ValueError("begins when it ends; leave it out for the whole day")
        return value

    @field_validator("days")
    @classmethod
    def _days_are_days(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for item in value:
            if any(day not in DAYS for day in item.split("-", 1)):
                raise ValueError(f"{item!r} is no day; write mon, tue, ... or a range as mon-fri")
        return value

    @field_validator("timezone")
    @classmethod
    def _zone_is_known(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (OSError, ValueError, KeyError):
            raise ValueError(f"{value!r} is no IANA time zone such as Europe/Berlin") from None
        return value

    @field_validator("networks")
    @classmethod
    def _networks_are_networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for network in value:
            ipaddress.ip_network(network, strict=False)
        return value


class PolicySettings(Section):
    """One rule. Of all rules the first that names a tool decides about it."""

    name: Annotated[str | None, Field(description="For people: in `explain` and in logs.")] = None
    tools: Annotated[
        tuple[Name, ...],
        Field(description="Names of tools; `*` and `?` stand for any text and any character."),
    ] = ()
    annotations: Annotated[
        Mapping[Name, bool | int | str],
        Field(
            description="Annotations that the tool must have: read_only, destructive, or any of "
            "its author's such as risk_level; texts may hold `*`. Both this and `tools` must fit."
        ),
    ] = Field(default_factory=dict)
    requires: Annotated[Requirement, Field(description="What the caller must have.")] = (
        Requirement()
    )
    any: Annotated[
        tuple[Requirement, ...],
        Field(description="Alternatives, of which the caller must meet one, besides `requires`."),
    ] = ()
    conditions: Annotated[Conditions, Field(description="When and from where.")] = Conditions()
    arguments: Annotated[
        Mapping[Name, Mapping[str, Any]],
        Field(description="JSON Schemas that arguments must satisfy, besides the tool's own."),
    ] = Field(default_factory=dict)
    required_approvals: Annotated[
        tuple[Name, ...], Field(description="Approvals that the caller must carry; all of them.")
    ] = ()
    otherwise: Annotated[
        Literal["hide", "challenge"] | None,
        Field(
            description="What a caller finds who lacks something: no such tool, or a refusal "
            "that says so. Default: challenge where only scopes are lacking, else hide."
        ),
    ] = None

    @model_validator(mode="after")
    def _names_tools(self) -> Self:
        if not self.tools and not self.annotations:
            raise ValueError('needs tools = ["..."] or annotations = {...}: which tools it is for')
        return self
