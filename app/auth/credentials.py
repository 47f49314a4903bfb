"""Finds the one credential of a request. Sans-I/O.

Sources: RFC 6750, section 2.1 (``Authorization: Bearer``); Authorization, "Access Token Usage"
(never in the query string).
"""

import re
from typing import Final, NamedTuple
from urllib.parse import parse_qsl

from app.auth.problems import Malformed, Refused
from app.protocol.headers import HeaderMap

# auth-scheme [ 1*SP credentials ], RFC 9110 section 11.4.
_AUTHORIZATION: Final = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+)(?: +([^ ].*))?\Z", re.DOTALL)
_BEARER_TOKEN: Final = re.compile(rb"[A-Za-z0-9\-._~+/]+=*\Z")  # b64token, RFC 6750 section 2.1
_OPTIONAL_SPACE: Final = b" \t"


CREDENTIALS: Final = frozenset({b"authorization", b"x-api-key"})
"""The headers that a credential may come in."""


class Credential(NamedTuple):
    """What a request shows.

    Attributes:
        text: The token or key, as it came.
        is_key: It came as ``X-API-Key``, so it can be nothing but a key.
    """

    text: bytes
    is_key: bool


def find_credential(headers: HeaderMap, query: bytes) -> Credential | None:
    """The credential of a request, or None where it shows none.

    ``Authorization`` with another scheme than Bearer is none of ours: something in front of this
    server may have asked for it.

    Raises:
        Malformed: There are two, or ``Authorization`` cannot be read.
        Refused: It is in the query string, where logs would keep it.
    """
    for name, shown in ((b"authorization", "Authorization"), (b"x-api-key", "X-API-Key")):
        # Ours: two copies are refused even where they agree. A proxy may check one while this
        # server obeys the other.
        if name in headers.repeated:
            raise Malformed(f"The header {shown} was sent twice; send one credential.")
    token = _bearer(headers.get(b"authorization", b"").strip(_OPTIONAL_SPACE))
    key = headers.get(b"x-api-key", b"").strip(_OPTIONAL_SPACE)
    in_query = has_query_token(query)
    if (token is not None) + bool(key) + in_query > 1:
        raise Malformed(
            "The request has two credentials; send one, as Authorization: Bearer or as X-API-Key."
        )
    if in_query:
        raise Refused(
            "A token in the query string is not accepted; send it as Authorization: Bearer."
        )
    if token is not None:
        return Credential(token, is_key=False)
    return Credential(key, is_key=True) if key else None


def has_query_token(query: bytes) -> bool:
    """Whether a query string has ``access_token`` (RFC 6750, section 2.3), however escaped."""
    if not query:
        return False
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
    return any(name == "access_token" for name, _ in pairs)


def other_scheme(headers: HeaderMap) -> bool:
    """Whether ``Authorization`` is there with another scheme than Bearer."""
    value = headers.get(b"authorization", b"").strip(_OPTIONAL_SPACE)
    return bool(value) and value.split(b" ", 1)[0].lower() != b"bearer"


def _bearer(value: bytes) -> bytes | None:
    if not value:
        return None
    match = _AUTHORIZATION.match(value)
    if match is None:
        raise Malformed("The header Authorization is malformed; send Authorization: Bearer TOKEN.")
    scheme, token = match.groups()
    if scheme.lower() != b"bearer":
        return None
    if token is None or not _BEARER_TOKEN.match(token):
        raise Malformed(
            "The token of the header Authorization is missing or malformed; send "
            "Authorization: Bearer TOKEN."
        )
    return bytes(token)
