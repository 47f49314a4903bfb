import socket
from collections.abc import Iterator

import pytest

from tests.support.client import McpClient
from tests.support.server import ServerProcess
from tests.tools.conftest import TOOLS, config
from tests.tools.open_meteo import FAULTS, OpenMeteo


@pytest.fixture(scope="module")
def without_service() -> Iterator[McpClient]:
    """A client of the example tools whose weather service is a closed port."""
    with socket.socket() as held:  # bound, so that no other program takes it, but not listening
        held.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{held.getsockname()[1]}"
        with ServerProcess(TOOLS, config(url, 20), env={"NO_PROXY": "*"}) as process:
            yield process.client


HERE = {"location": "Paris, Île-de-France, France", "temperature": 21.4}
TEXAS = {"location": "Paris, Texas, United States", "temperature": 88.5}


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("Paris", {**HERE, "conditions": "Partly cloudy", "humidity": 63}),
        ("paris, FRANCE", HERE),
        ("Paris,", HERE),
        ("75001", HERE),
        ("Paris, Texas", {**TEXAS, "conditions": "Thunderstorm", "humidity": 40}),
        ("Paris,Texas,US", TEXAS),
        ("Null Island", {"location": "Null Island", "conditions": "Weather code 42"}),
    ],
)
def test_a_place_has_weather(served: McpClient, location: str, expected: dict[str, object]) -> None:
    value = served.call("get_weather_data", {"location": location}).value

    assert value == {**value, **expected}
    assert value["unit"] == "celsius"
    assert value["observed_at"] == "2025-06-01T12:15:00Z"


@pytest.mark.parametrize("unit", ["celsius", "fahrenheit"])
def test_the_service_is_asked_for_the_unit(
    served: McpClient, open_meteo: OpenMeteo, unit: str
) -> None:
    value = served.call("get_weather_data", {"location": "Paris", "unit": unit}).value

    assert value["unit"] == unit
    assert open_meteo.asked("/v1/forecast")["temperature_unit"] == unit


@pytest.mark.parametrize("location", ["Nowhere", "Paris, Nowhere", ",", " "])
def test_an_unknown_place_is_named_with_advice(served: McpClient, location: str) -> None:
    reply = served.call("get_weather_data", {"location": location})

    assert reply.is_error
    assert reply.text.startswith(f"No place is known as {location!r}.")


@pytest.mark.parametrize("fault", FAULTS)
def test_a_bad_answer_of_the_service_is_told_and_nothing_of_its_text(
    served: McpClient, fault: str
) -> None:
    reply = served.call("get_weather_data", {"location": fault})

    status = FAULTS[fault][0]
    assert reply.is_error
    assert reply.text == (
        "The weather service takes no more requests for now. Try again later."
        if status == 429
        else f"The weather service gave an answer of no use (HTTP {status}). Try again later."
    )


def test_a_service_that_cannot_be_reached_is_told(without_service: McpClient) -> None:
    reply = without_service.call("get_weather_data", {"location": "Paris"})

    assert reply.is_error
    assert reply.text == "The weather service cannot be reached. Try again later."


def test_a_service_that_keeps_silent_is_given_up(hurried: McpClient) -> None:
    reply = hurried.call("get_weather_data", {"location": "silence"})

    assert reply.is_error
    assert reply.text == "The weather service did not answer in time. Try again later."


@pytest.mark.parametrize("location", ["", "x" * 201, None, 7])
def test_a_location_that_is_none_is_refused_without_asking(
    served: McpClient, open_meteo: OpenMeteo, location: object
) -> None:
    asked = len(open_meteo.requests)

    assert served.call("get_weather_data", {"location": location}).is_error
    assert len(open_meteo.requests) == asked
