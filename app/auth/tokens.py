"""JSON Web Tokens: read, and checked against a key.

Sources: RFC 7515, RFC 7519, RFC 8725 (best current practices), RFC 9068 (``at+jwt``).
"""

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import jwt
import orjson

from app.auth.keys import MAX_KID
from app.auth.problems import Refused
from app.settings import IssuerSettings

MAX_TOKEN_BYTES: Final = 16 * 1024
MAX_HEADER: Final = 4 * 1024
"""Characters of the header: one that brings a certificate along, as some do, fits in."""
MAX_CONTAINERS: Final = 1000
"""Lists and objects of a part. A token full of empty ones takes long to read, for its size."""

_COMPACT: Final = re.compile(rb"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*\Z")
_ALGORITHMS: Final = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"),
)
_jws: Final = jwt.PyJWS(algorithms=_ALGORITHMS)


class Unverified(NamedTuple):
    """What a token says about itself. Nothing of it is true yet.

    Attributes:
        issuer: The claim ``iss``, whatever it is.
        header: The JOSE header.
    """

    issuer: Any
    header: Mapping[str, Any]


def read_unverified(token: bytes) -> Unverified | None:
    """Header and issuer of a JWT, or None where a token is none.

    Args:
        token: Of no more than ``MAX_TOKEN_BYTES``.

    Raises:
        Refused: Nothing that large is read before its signature is checked.
    """
    if token.count(b".") != 2:
        return None
    head, payload, _ = token.split(b".")
    if len(head) > MAX_HEADER:
        raise Refused("The token's header is too long.")
    if not _COMPACT.match(token):
        return None
    header, claims = _object(head), _object(payload)
    if header is None or claims is None or "alg" not in header:
        return None
    return Unverified(claims.get("iss"), header)


def check_header(header: Mapping[str, Any], settings: IssuerSettings) -> tuple[str | None, str]:
    """Name of the key and algorithm, if an issuer's tokens may have such a header.

    A key that a header brings along or points to (``jwk``, ``jku``, ``x5c``, ``x5u``) is not
    looked at: it proves nothing.

    Raises:
        Refused: They may not.
    """
    algorithm = header["alg"]
    if not isinstance(algorithm, str) or algorithm not in settings.algorithms:
        raise Refused("The token's algorithm is not accepted.")
    if "crit" in header or header.get("b64", True) is not True:
        raise Refused("The token demands an extension that is not supported (crit).")
    if not _is_accepted_type(header.get("typ"), settings.token_types):
        raise Refused("The token's type (typ) is not accepted.")
    kid = header.get("kid")
    if kid is not None and not (isinstance(kid, str) and 0 < len(kid) <= MAX_KID):
        raise Refused("The token's kid is not a text of reasonable length.")
    return kid, algorithm


def check_signature(token: bytes, key: jwt.PyJWK, algorithm: str) -> Mapping[str, Any]:
    """The claims of a token that this key has signed.

    Args:
        algorithm: As ``check_header`` returned it; ``key`` is bound to the same.

    Raises:
        Refused: It was not signed with this key.
    """
    try:
        complete = _jws.decode_complete(token, key, algorithms=[algorithm])
        claims = orjson.loads(complete["payload"])
    except (jwt.PyJWTError, ValueError):
        raise Refused("The token's signature is wrong.") from None
    if not isinstance(claims, dict):
        raise Refused("The token has no claims.")
    return claims


def _is_accepted_type(value: Any, accepted: tuple[str, ...]) -> bool:
    """``typ`` has no case, and ``application/`` may stand before it (RFC 7515, 4.1.9)."""
    if value is None:
        value = "JWT"
    if not isinstance(value, str):
        return False
    return _short_type(value) in {_short_type(each) for each in accepted}


def _short_type(value: str) -> str:
    return value.lower().removeprefix("application/")


def _object(part: bytes) -> dict[str, Any] | None:
    try:
        text = jwt.utils.base64url_decode(part)
        if text.count(b"[") + text.count(b"{") > MAX_CONTAINERS:
            raise Refused("The token has too many lists and objects.")
        value = orjson.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
