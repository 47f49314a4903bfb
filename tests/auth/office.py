"""The office of the end-to-end tests: tools, rules, and people who see different parts of it."""

import hashlib
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.support.client import McpClient, Reply, Stream
from tests.support.http1 import Response
from tests.support.sse import Comment

Json = Any
Headers = dict[str, str | bytes | None]

TOOLS: Final = Path(__file__).with_name("tools")
PUBLIC_URL: Final = "https://tools.example.com"
RESOURCE: Final = f"{PUBLIC_URL}/mcp"
METADATA_URL: Final = f"{PUBLIC_URL}/.well-known/oauth-protected-resource/mcp"
APP_ORIGIN: Final = "https://app.example.com"

FOR_ALL: Final = {"tools": ["whoami", "gather", "give_up", "crash", "erase_notes"]}
POLICIES: Final[Sequence[Mapping[str, Json]]] = (
    FOR_ALL,
    {"tools": ["read_notes"], "requires": {"scopes": ["tools:read"]}},
    {"tools": ["write_notes"], "requires": {"scopes": ["tools:write", "tools:admin"]}},
    {"tools": ["finance.*"], "requires": {"roles": ["accountant", "controller"]}},
    {"tools": ["ring_bell"], "conditions": {"networks": ["10.0.0.0/8"]}},
    {"tools": ["stamp"], "arguments": {"copies": {"maximum": 3}}},
)
COMMON: Final = {"whoami", "gather", "give_up", "crash", "ring_bell", "stamp"}
SCOPED: Final = {"read_notes", "write_notes", "erase_notes"}
FINANCE: Final = {"finance.pay", "finance.send"}


def config(
    *issuers: Mapping[str, Json],
    policies: Sequence[Mapping[str, Json]] = POLICIES,
    auth: Mapping[str, Json] | None = None,
    server: Mapping[str, Json] | None = None,
    **sections: Json,
) -> dict[str, Json]:
    """The configuration of an office that believes these issuers.

    Args:
        auth: Further keys of `[auth]`.
        server: Further keys of `[server]`.
        sections: Further sections.
    """
    return {
        "server": {
            "public_url": PUBLIC_URL,
            "allowed_hosts": ["internal"],
            "allowed_origins": [APP_ORIGIN],
            **(server or {}),
        },
        "auth": {
            "issuers": list(issuers),
            "scopes_supported": ["tools:read"],
            **(auth or {}),
        },
        "policies": list(policies),
        **sections,
    }


def bearer(token: str) -> Headers:
    """The header that carries a token."""
    return {"Authorization": f"Bearer {token}"}


def api_key(id: str, **grants: Json) -> tuple[str, dict[str, Json]]:
    """A new API key, and its table of `[[auth.api_keys]]`."""
    key = f"mts_{id}_{secrets.token_urlsafe(32)}"
    return key, key_table(id, key, **grants)


def key_table(id: str, key: str, **grants: Json) -> dict[str, Json]:
    """The table of an API key."""
    digest = hashlib.sha256(key.encode("ascii")).hexdigest()
    return {"id": id, "hash": f"sha256:{digest}", **grants}


def challenge(reply: Reply | Response) -> dict[str, str]:
    """The parameters of the one challenge of a refusal, which must be a well-formed Bearer one."""
    value = reply.header("www-authenticate")
    assert value is not None, "no challenge"
    scheme, _, rest = value.partition(" ")
    assert scheme == "Bearer", value
    pairs = re.findall(r'([a-z_]+)="([^"\\]*)"(?:, |$)', rest)
    assert ", ".join(f'{name}="{text}"' for name, text in pairs) == rest, value
    assert len(dict(pairs)) == len(pairs), value
    return dict(pairs)


def raw(response: Response) -> tuple[int, str, list[tuple[str, str]], bytes]:
    """All of a response that a caller can see, but the date."""
    headers = [(name, value) for name, value in response.headers if name != "date"]
    return response.status, response.reason, headers, response.body


def is_quiet(stream: Stream, for_s: float) -> None:
    """Nothing comes but signs of life, which may have come before and not been read yet."""
    until = time.monotonic() + for_s
    while time.monotonic() < until:
        item = stream.reader.next()
        assert isinstance(item, Comment), item


def whoami(client: McpClient, headers: Headers, **how: Any) -> Json:
    """As whom a call with these headers is served."""
    return client.call("whoami", {}, headers, **how).value
