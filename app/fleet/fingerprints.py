"""Fingerprints by which replicas compare their settings, and never the secrets among them."""

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel
from pydantic.types import SecretStr

from app.protocol.jsonrpc import canonical
from app.protocol.sealed import KeyRing
from app.settings import Settings

DIGITS: Final = 16

OWN: Final = frozenset(
    {
        *("server.host", "server.port", "server.trusted_proxies", "tools.directory", "logging"),
        *("admin.host", "admin.port", "admin.allowed_hosts", "secrets.keys", "state.url"),
    }
)
"""Settings in which replicas may differ: where they are and how they reach what they lean on. The
keys are compared by themselves."""

_TOOL_SETTINGS: Final = re.compile(r"overrides\..*\.settings\Z")


def configuration_fingerprint(
    settings: Settings, keys: KeyRing, extra: Iterable[object] = ()
) -> str:
    """Hex digits that are equal where settings are.

    Paths are left out: they may differ, and what they lead to is what counts. Secrets go in as a
    keyed digest alone, so that nobody can try out guesses. So does all that tools are given as
    settings: what of it is secret only they know.

    Args:
        keys: The newest one is the key of those digests.
        extra: What files have, such as keys of callers.
    """
    (key, *_) = keys.derived("fingerprint of settings")

    def keyed(text: str) -> str:
        return hmac.digest(key, text.encode("utf-8", "surrogatepass"), hashlib.sha256).hex()

    def shown(value: Any, path: str) -> Any:
        if isinstance(value, BaseModel):
            value = {name: getattr(value, name) for name in type(value).model_fields}
        if path in OWN or isinstance(value, Path):
            return None
        if isinstance(value, SecretStr):
            return keyed(value.get_secret_value())
        if isinstance(value, Mapping) and not _TOOL_SETTINGS.match(path):
            inside = path and path + "."
            return {str(name): shown(each, f"{inside}{name}") for name, each in value.items()}
        if isinstance(value, list | tuple):
            return [shown(each, path) for each in value]
        return keyed(repr(_ordered(value))) if isinstance(value, Mapping) else repr(value)

    described = [shown(settings, ""), sorted(map(repr, extra))]
    return hashlib.sha256(canonical(described)).hexdigest()[:DIGITS]


def key_fingerprints(keys: KeyRing) -> tuple[str, ...]:
    """Hex digits for each key, newest first; the key cannot be told from them."""
    return tuple(
        hashlib.sha256(derived).hexdigest()[:DIGITS]
        for derived in keys.derived("fingerprint of a key")
    )


def _ordered(value: Any) -> Any:
    if isinstance(value, Mapping):
        return sorted((str(name), _ordered(each)) for name, each in value.items())
    if isinstance(value, list | tuple):
        return [_ordered(each) for each in value]
    return value
