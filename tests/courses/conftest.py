"""One server with tools whose calls have something around them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.auth.office import Headers, api_key, key_table
from tests.support.client import McpClient
from tests.support.server import ServerProcess

TOOLS: Final = Path(__file__).parent / "tools"
HOOKED: Final = Path(__file__).parent / "hooked"
KEYS: Final = {name: api_key(name)[0] for name in ("ada", "bob", "eve")}
TENANTS: Final = {"ada": "acme", "bob": "acme", "eve": "evil"}
WHO: Final[dict[str, Headers]] = {name: {"X-API-Key": key} for name, key in KEYS.items()}
ADA, BOB, EVE = WHO.values()

CONFIG: Final[dict[str, Any]] = {
    "auth": {
        "api_keys": [key_table(name, key, tenant=TENANTS[name]) for name, key in KEYS.items()],
        "allow_unauthenticated": True,
    },
    "policies": [{"tools": ["*"]}],
    "tools": {"reload": False},
    "execution": {"processes": 1},
}


@pytest.fixture(scope="module")
def courses() -> Iterator[ServerProcess]:
    """The server."""
    with ServerProcess(TOOLS, CONFIG) as process:
        yield process


@pytest.fixture
def client(courses: ServerProcess) -> McpClient:
    """A client of `courses`."""
    return courses.client
