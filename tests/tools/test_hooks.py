"""The example hooks."""

from pathlib import Path
from typing import Any, Final

from tests.auth.office import api_key, key_table
from tests.support.cases import rows
from tests.support.client import McpClient, meta
from tests.support.server import ServerFactory
from tests.support.toolfiles import write
from tests.tools.conftest import TOOLS

WEATHER: Final = """
from typing import TypedDict

from app import tool


class Weather(TypedDict):
    temperature: float
    unit: str


@tool
async def weather(unit: str = "celsius") -> Weather:
    \"\"\"Tell the weather.\"\"\"
    return {"temperature": 20.0 if unit == "celsius" else 68.0, "unit": unit}
"""


def _served(factory: ServerFactory, folder: Path, *hooks: dict[str, Any], **more: Any) -> McpClient:
    write(folder / "hooks.py", (TOOLS / "hooks.py").read_text("utf-8"))
    write(folder / "weather.py", WEATHER)
    return factory(folder, {"tools": {"reload": False}, "hooks": list(hooks), **more}).client


@rows(
    "locale, arguments, expected",
    ("the United States", "en-US", {}, (68.0, "fahrenheit")),
    ("with an underscore", "en_us", {}, (68.0, "fahrenheit")),
    ("China", "zh-CN", {}, (20.0, "celsius")),
    ("a language alone", "de", {}, (20.0, "celsius")),
    ("nothing", None, {}, (20.0, "celsius")),
    ("no text", 7, {}, (20.0, "celsius")),
    ("who asks for a unit gets it", "en-US", {"unit": "celsius"}, (20.0, "celsius")),
)
def test_temperatures_are_told_in_the_unit_of_the_country(
    server_factory: ServerFactory,
    tmp_path: Path,
    locale: Any,
    arguments: dict[str, Any],
    expected: tuple[float, str],
) -> None:
    client = _served(server_factory, tmp_path, {"tools": ["weather"], "use": "units_by_locale"})
    own = {**meta(), "metadata": {"locale": locale}} if locale is not None else meta()
    value = client.call("weather", arguments, meta_=own).value
    assert (value["temperature"], value["unit"]) == expected


def test_a_caller_is_always_in_the_same_group_of_an_experiment(
    server_factory: ServerFactory, tmp_path: Path
) -> None:
    keys = {f"caller-{number}": api_key(f"caller-{number}")[0] for number in range(12)}
    auth = {"api_keys": [key_table(name, key) for name, key in keys.items()]}
    options = {"name": "ranking", "groups": ["a", "b"]}
    entry = {"tools": ["*"], "use": "experiment", "options": options}
    client = _served(server_factory, tmp_path, entry, auth=auth, policies=[{"tools": ["*"]}])
    groups = {}
    for name, key in keys.items():
        seen = {
            block["annotations"]["experiment"]
            for _ in range(2)
            for block in client.call("weather", {}, {"X-API-Key": key}).result["content"]
        }
        (groups[name],) = seen
    assert set(groups.values()) == {"ranking:a", "ranking:b"}
