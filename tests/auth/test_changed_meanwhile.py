"""A file of keys may change between a look at it and its use."""

from pathlib import Path

import pytest

import app.service
from app.auth.api_keys import hash_key, make_key
from app.observability.metrics import RELOADS
from app.service import Service
from app.settings import Settings
from tests.support.toolfiles import write

FAILED = ("settings", "failed")


async def test_a_file_that_breaks_after_it_was_looked_at_leaves_the_keys_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools, keys, config = tmp_path / "tools", tmp_path / "keys.toml", tmp_path / "config.toml"
    tools.mkdir()
    write(keys, f'[[api_keys]]\nid = "ada"\nhash = "{hash_key(make_key("ada"))}"\n')
    write(config, f'[tools]\ndirectory = "{tools}"\n[auth]\napi_keys_file = "{keys}"\n')
    settings = Settings.model_validate(
        {"tools": {"directory": tools, "reload": False}, "auth": {"api_keys_file": keys}}
    )
    service = Service(settings, config=config, log_problems=False)
    await service.start()
    try:
        before, failed = service.endpoint.authenticator, RELOADS.copy().get(FAILED, 0)
        monkeypatch.setattr(app.service, "is_usable", lambda _: True)  # it was, a moment ago
        write(keys, "half a li")
        await service._reload()
        assert service.endpoint.authenticator is before
        assert list(before.keys.by_id) == ["ada"]
        assert RELOADS.copy()[FAILED] == failed + 1
    finally:
        await service.stop()
