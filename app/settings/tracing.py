"""Traces: spans of requests, and where they are sent."""

import re
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from app.settings.base import Section

MAX_BAGGAGE_KEYS: Final = 32
_BAGGAGE_KEY: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,128}\Z")


class TracingSettings(Section):
    """``[tracing]``. What is not set here the ``OTEL_*`` variables of the environment decide."""

    enabled: Annotated[
        bool,
        Field(
            description="Make a span of each request. Needs the extra: "
            '`pip install "mcp-tool-server[telemetry]"`.'
        ),
    ] = False
    endpoint: Annotated[
        str | None,
        Field(
            description="Collector that takes OTLP over HTTP, `/v1/traces` is added; default: "
            "`OTEL_EXPORTER_OTLP_ENDPOINT`, else http://localhost:4318."
        ),
    ] = None
    sample_ratio: Annotated[
        float | None,
        Field(
            ge=0,
            le=1,
            description="Part of the traces that begin here; where the caller has one, it decides. "
            "Default: `OTEL_TRACES_SAMPLER`, else all.",
        ),
    ] = None
    service_name: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=128,
            description="`service.name` of the spans; default: `OTEL_SERVICE_NAME`, else the "
            "server's name.",
        ),
    ] = None
    baggage: Annotated[
        tuple[str, ...],
        Field(
            description="Keys of the caller's baggage that tools see and their outgoing requests "
            "carry on; none: it is dropped.",
        ),
    ] = ()

    @field_validator("endpoint")
    @classmethod
    def _is_a_url(cls, value: str | None) -> str | None:
        if value is None:
            return None
        try:
            parts = urlsplit(value)
            is_right = parts.port != 0  # raises where it is no number
        except ValueError:
            is_right = False
            parts = urlsplit("")
        if (
            not is_right
            or parts.scheme not in ("http", "https")
            or not parts.hostname
            or parts.username is not None
            or parts.query
            or parts.fragment
        ):
            raise ValueError(
                "must be an http:// or https:// URL without user, query or fragment; what a "
                "collector demands goes into OTEL_EXPORTER_OTLP_HEADERS"
            )
        return value.rstrip("/")

    @field_validator("baggage")
    @classmethod
    def _are_keys(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(value) > MAX_BAGGAGE_KEYS or not all(map(_BAGGAGE_KEY.match, value)):
            raise ValueError(
                f"must be at most {MAX_BAGGAGE_KEYS} keys of W3C Baggage: letters, digits, and "
                "- . _ among others"
            )
        return value
