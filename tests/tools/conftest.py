"""Servers with the example tools, as they ship."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.client import McpClient
from tests.support.server import ServerProcess
from tests.tools.open_meteo import OpenMeteo

TOOLS = Path(__file__).resolve().parents[2] / "tools"


def config(weather_url: str, weather_timeout_s: float, **overrides: Any) -> dict[str, Any]:
    """A configuration whose weather comes from `weather_url`."""
    weather = {
        "base_url": weather_url,
        "geocoding_url": f"{weather_url}/",  # with or without the slash
        "timeout_s": weather_timeout_s,
    }
    return {
        "tools": {"reload": False},
        "overrides": {"get_weather_data": {"settings": weather}, **overrides},
    }


@pytest.fixture(scope="session")
def open_meteo() -> Iterator[OpenMeteo]:
    """The weather service."""
    with OpenMeteo() as service:
        yield service


@pytest.fixture(scope="session")
def served(open_meteo: OpenMeteo) -> Iterator[McpClient]:
    """A client of the example tools."""
    # Whoever runs the tests may sit behind a proxy; the weather service here does not.
    with ServerProcess(TOOLS, config(open_meteo.url, 20), env={"NO_PROXY": "*"}) as process:
        yield process.client


@pytest.fixture(scope="session")
def hurried(open_meteo: OpenMeteo) -> Iterator[McpClient]:
    """A client of the example tools under deadlines that tests can wait for."""
    settings = config(open_meteo.url, 0.5, execute_sql={"timeout_s": 1.0})
    with ServerProcess(TOOLS, settings, env={"NO_PROXY": "*"}) as process:
        yield process.client
