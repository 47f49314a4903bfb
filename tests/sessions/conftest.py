"""A server for clients of older revisions."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.auth.office import Headers, api_key, key_table
from tests.sessions.conversation import Conversation
from tests.support.server import ServerProcess

TOOLS: Final = Path(__file__).parent / "tools"
KEYS: Final = {name: api_key(name)[0] for name in ("ada", "eve")}
WHO: Final[dict[str, Headers]] = {name: {"X-API-Key": key} for name, key in KEYS.items()}
ADA, EVE = WHO.values()
CONFIG: Final[dict[str, Any]] = {
    "server": {"name": "old-friend", "title": "Old friend", "instructions": "Be kind."},
    "auth": {
        "api_keys": [key_table(name, key) for name, key in KEYS.items()],
        "allow_unauthenticated": True,
    },
    "policies": [{"tools": ["*"]}],
    "tools": {"reload": False},
    "execution": {"keep_alive_s": 0.5},
    "legacy": {"ask_timeout_s": 3},
}
Open = Callable[..., Conversation]


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """The server."""
    with ServerProcess(TOOLS, CONFIG) as process:
        yield process


@pytest.fixture
def talk(old: ServerProcess) -> Iterator[Open]:
    """Opens conversations with `old`."""
    made: list[Conversation] = []

    def begin(version: str = "2025-11-25", *, opened: bool = True, **how: Any) -> Conversation:
        capabilities = how.pop("capabilities", None)
        conversation = Conversation([how.pop("server", old)], version, **how)
        made.append(conversation)
        if opened:
            conversation.open(capabilities)
        return conversation

    yield begin
    for conversation in made:
        conversation.__exit__()
