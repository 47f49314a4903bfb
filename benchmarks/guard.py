"""An issuer, a token of it, and rules: what a server with authorization has to look at."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import NamedTuple

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

RULES = 20
_ISSUER = "https://login.example"


class Access(NamedTuple):
    """A configuration, and the token of somebody whom it lets in."""

    config: str
    token: str


def write(folder: Path, *, resource: str) -> Access:
    """Make a key, put its public half into `folder`, and sign a token for `resource`."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    public = json.loads(RSAAlgorithm.to_jwk(key.public_key()))
    keys = folder / "keys.json"
    keys.write_text(json.dumps({"keys": [{**public, "kid": "1", "alg": "RS256", "use": "sig"}]}))
    now = int(time.time())
    claims = {
        "iss": _ISSUER,
        "aud": resource,
        "sub": "somebody",
        "iat": now,
        "exp": now + 3600,
        "jti": "benchmark",
        "scope": "tools:read tools:write",
        "roles": ["staff", "engineer"],
        "tenant": "example",
        "email": "somebody@example.com",
    }
    token = jwt.encode(claims, key, "RS256", headers={"kid": "1", "typ": "at+jwt"})
    others = "".join(_rule(f"other_{number}.*", "admin") for number in range(RULES - 1))
    issuer = f"""[[auth.issuers]]
issuer = "{_ISSUER}"
discovery = false
keys_file = {json.dumps(str(keys))}
"""
    return Access(issuer + others + _rule("convert_*", "staff"), token)


def _rule(tools: str, role: str) -> str:
    return f"""
[[policies]]
tools = ["{tools}"]
requires = {{ scopes = ["tools:read"], roles = ["{role}", "owner"] }}
"""
