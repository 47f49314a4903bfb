"""A tool that calls another service over HTTP, with a connection pool that calls share.

Settings, in config.toml (defaults shown), for a proxy or a server of your own:

    [overrides.get_weather_data.settings]
    base_url = "https://api.open-meteo.com"
    geocoding_url = "https://geocoding-api.open-meteo.com"
    timeout_s = 10
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Annotated, Final, Literal

import httpx2
from pydantic import BaseModel, Field

from app import Context, ToolError, tool

from ._open_meteo import CONDITIONS, current_weather, find_place

BASE_URL: Final = "https://api.open-meteo.com"
GEOCODING_URL: Final = "https://geocoding-api.open-meteo.com"
TIMEOUT_S: Final = 10.0


class Weather(BaseModel):
    location: Annotated[str, Field(description="The place that was found.")]
    temperature: Annotated[float, Field(description="Air temperature in the unit asked for.")]
    unit: Annotated[Literal["celsius", "fahrenheit"], Field(description="Unit of temperature.")]
    conditions: Annotated[str, Field(description="Weather conditions in words.")]
    humidity: Annotated[float, Field(description="Relative humidity in percent.")]
    observed_at: Annotated[datetime, Field(description="Time of the observation, UTC.")]


@asynccontextmanager
async def lifespan() -> AsyncIterator[httpx2.AsyncClient]:
    """One client for all calls; it is closed after the last call that used it."""
    # Reading the certificates takes tens of milliseconds: not in the event loop.
    certificates = await asyncio.to_thread(httpx2.create_ssl_context)
    # The deadline is that of the call as a whole, below.
    async with httpx2.AsyncClient(verify=certificates, timeout=None) as client:
        yield client


@tool(
    title="Current weather",
    annotations={"read_only": True, "open_world": True},
)
async def get_weather_data(
    ctx: Context,
    location: Annotated[
        str,
        Field(
            min_length=1,
            max_length=200,
            description='City ("Oslo"; "Paris, Texas") or postal code.',
        ),
    ],
    unit: Annotated[
        Literal["celsius", "fahrenheit"], Field(description="Unit of the temperature.")
    ] = "celsius",
) -> Weather:
    """Get the current weather at a place: temperature, conditions and humidity."""
    client: httpx2.AsyncClient = ctx.lifespan
    headers = ctx.trace_headers()  # the service's work belongs to the caller's trace
    try:
        # Not the client's timeouts, which begin anew with every byte that comes.
        async with asyncio.timeout(float(ctx.settings.get("timeout_s", TIMEOUT_S))):
            url = _url(ctx, "geocoding_url", GEOCODING_URL)
            place = await find_place(client, url, location, headers=headers)
            url = _url(ctx, "base_url", BASE_URL)
            now = await current_weather(client, url, place, unit=unit, headers=headers)
    except TimeoutError:
        raise ToolError("The weather service did not answer in time. Try again later.") from None
    return Weather(
        location=str(place),
        temperature=now.temperature_2m,
        unit=unit,
        conditions=CONDITIONS.get(now.weather_code, f"Weather code {now.weather_code}"),
        humidity=now.relative_humidity_2m,
        observed_at=now.time.replace(tzinfo=UTC),
    )


def _url(ctx: Context, key: str, default: str) -> str:
    return str(ctx.settings.get(key, default)).rstrip("/")
