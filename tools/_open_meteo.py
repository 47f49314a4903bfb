"""A client of Open-Meteo's geocoding and forecast services: a helper module, not a tool.

Source: https://open-meteo.com/en/docs and https://open-meteo.com/en/docs/geocoding-api
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final, TypeVar

import httpx2
from pydantic import BaseModel, Field, ValidationError

from app import ToolError

MAX_ANSWER_BYTES: Final = 1_000_000
Answer = TypeVar("Answer", bound=BaseModel)


class Place(BaseModel):
    name: str
    latitude: float
    longitude: float
    admin1: str | None = None
    country: str | None = None
    country_code: str | None = None

    def __str__(self) -> str:
        return ", ".join(part for part in (self.name, self.admin1, self.country) if part)


class Places(BaseModel):
    results: list[Place] = []  # absent when nothing was found


class Current(BaseModel):
    time: datetime
    temperature_2m: float
    relative_humidity_2m: float = Field(ge=0, le=100)
    weather_code: int


class Forecast(BaseModel):
    current: Current


CONDITIONS: Final = {
    0: "Clear sky",
    1: "Mainly clear",
    2: "Partly cloudy",
    3: "Overcast",
    45: "Fog",
    48: "Depositing rime fog",
    51: "Light drizzle",
    53: "Moderate drizzle",
    55: "Dense drizzle",
    56: "Light freezing drizzle",
    57: "Dense freezing drizzle",
    61: "Slight rain",
    63: "Moderate rain",
    65: "Heavy rain",
    66: "Light freezing rain",
    67: "Heavy freezing rain",
    71: "Slight snowfall",
    73: "Moderate snowfall",
    75: "Heavy snowfall",
    77: "Snow grains",
    80: "Slight rain showers",
    81: "Moderate rain showers",
    82: "Violent rain showers",
    85: "Slight snow showers",
    86: "Heavy snow showers",
    95: "Thunderstorm",
    96: "Thunderstorm with slight hail",
    99: "Thunderstorm with heavy hail",
}
"""Texts of the WMO weather codes that Open-Meteo uses."""


async def find_place(
    client: httpx2.AsyncClient, base_url: str, location: str, *, headers: Mapping[str, str]
) -> Place:
    """The place that a person means by "Paris", "Paris, Texas" or a postal code.

    Args:
        headers: Go with the request.

    Raises:
        ToolError: No such place, or the service failed.
    """
    # The service searches names alone; what follows a comma chooses among its answers.
    name, *hints = [part.strip() for part in location.split(",")]
    wanted = {hint.casefold() for hint in hints if hint}
    count = 10 if wanted else 1
    for place in await _search(client, base_url, name, count=count, headers=headers):
        known = {place.admin1, place.country, place.country_code}
        if wanted <= {part.casefold() for part in known if part}:
            return place
    raise ToolError(
        f"No place is known as {location[:100]!r}. Use a city, with its country or state after "
        'a comma ("Paris, France"), or a postal code.'
    )


async def _search(
    client: httpx2.AsyncClient, base_url: str, name: str, *, count: int, headers: Mapping[str, str]
) -> list[Place]:
    if not name:
        return []
    params: dict[str, str | int | float] = {"name": name, "count": count, "language": "en"}
    return (await _get(client, f"{base_url}/v1/search", params, headers, Places)).results


async def current_weather(
    client: httpx2.AsyncClient,
    base_url: str,
    place: Place,
    *,
    unit: str,
    headers: Mapping[str, str],
) -> Current:
    """The weather now; `unit` is celsius or fahrenheit.

    Args:
        headers: Go with the request.

    Raises:
        ToolError: The service failed.
    """
    forecast = await _get(
        client,
        f"{base_url}/v1/forecast",
        {
            "latitude": place.latitude,
            "longitude": place.longitude,
            "current": "temperature_2m,relative_humidity_2m,weather_code",
            "temperature_unit": unit,
            "timezone": "UTC",
        },
        headers,
        Forecast,
    )
    return forecast.current


async def _get(
    client: httpx2.AsyncClient,
    url: str,
    params: dict[str, str | int | float],
    headers: Mapping[str, str],
    kind: type[Answer],
) -> Answer:
    try:
        async with client.stream("GET", url, params=params, headers=headers) as response:
            body = bytearray()
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > MAX_ANSWER_BYTES:
                    break
    except httpx2.TimeoutException as error:
        raise ToolError("The weather service did not answer in time. Try again later.") from error
    except httpx2.RequestError as error:
        raise ToolError("The weather service cannot be reached. Try again later.") from error
    if response.status_code == httpx2.codes.TOO_MANY_REQUESTS:
        raise ToolError("The weather service takes no more requests for now. Try again later.")
    try:
        response.raise_for_status()
        return kind.model_validate_json(bytes(body))
    except (httpx2.HTTPStatusError, ValidationError) as error:
        raise ToolError(
            f"The weather service gave an answer of no use (HTTP {response.status_code}). "
            "Try again later."
        ) from error
