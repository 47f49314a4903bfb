"""Finds the one credential of a request. Sans-I/O.

Sources: RFC 6750, section 2.1 (``Authorization: Bearer``); Authorization, "Access Token Usage"
(never in the query string).
"""

import hashlib
import re
from typing import Final, NamedTuple

from app.auth.api_keys import PREFIX
from app.auth.problems import Malformed, Refused
from app.auth.tokens import MAX_TOKEN_BYTES
from app.protocol.headers import HeaderMap

MAX_QUERY: Final = 2048
"""Bytes of a query string. Nothing here needs one; a longer one is not searched."""

_SCHEME: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,64}\Z")  # RFC 9110, section 11.1
_BEARER_TOKEN: Final = re.compile(rb"[A-Za-z0-9\-._~+/]+=*\Z")  # b64token, RFC 6750 section 2.1
_OPTIONAL_SPACE: Final = b" \t"


def _however_escaped(character: str) -> str:
    return f"(?:{character}|%(?i:{ord(character):02x}))"


# A name in a query, whichever of its characters are escaped. Not decoded first, since that takes
# long for what anybody may send.
_QUERY_TOKEN: Final = re.compile(
    f"&{''.join(map(_however_escaped, 'access_token'))}(?:[=&]|\\Z)".encode("ascii")
)

CREDENTIALS: Final = frozenset({b"authorization", b"x-api-key"})
"""The headers that a credential may come in."""


class Credential(NamedTuple):
    """What a request shows.

    Attributes:
        text: The token or key, as it came.
        is_key: It came as ``X-API-Key`` or begins as a key does, so it can be nothing else. A
            key with a mistake in it is still a secret, and is shown to no issuer.
    """

    text: bytes
    is_key: bool


def find_credential(headers: HeaderMap, query: bytes) -> Credential | None:
    """The credential of a request, or None where it shows none.

    ``Authorization`` with another scheme than Bearer is none of ours: something in front of this
    server may have asked for it.

    Raises:
        Malformed: There are two, or ``Authorization`` cannot be read, or the query string is
            longer than any that should be looked through.
        Refused: It is in the query string, where logs would keep it; or it is too long.
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
        if len(token) > MAX_TOKEN_BYTES:
            raise Refused("The token is too long.")
        if not _BEARER_TOKEN.match(token):
            raise Malformed(
                "The token of the header Authorization is missing or malformed; send "
                "Authorization: Bearer TOKEN."
            )
        return Credential(token, is_key=token.startswith(PREFIX))
    return Credential(key, is_key=True) if key else None


def digest_of(token: bytes) -> bytes:
    """What a token is remembered by. The token itself is not kept."""
    return hashlib.sha256(token).digest()


def has_query_token(query: bytes) -> bool:
    """Whether a query string has ``access_token`` (RFC 6750, section 2.3), however escaped.

    Raises:
        Malformed: It is too long to look for that.
    """
    if not query:
        return False
    if len(query) > MAX_QUERY:
        raise Malformed(f"The query string is longer than {MAX_QUERY} bytes; none is needed.")
    return _QUERY_TOKEN.search(b"&" + query) is not None


def other_scheme(headers: HeaderMap) -> bool:
    """Whether ``Authorization`` is there with another scheme than Bearer."""
    value = headers.get(b"authorization", b"").strip(_OPTIONAL_SPACE)
    return bool(value) and value.split(b" ", 1)[0].lower() != b"bearer"


def _bearer(value: bytes) -> bytes | None:
    """What stands behind the scheme Bearer, whatever it is; None without that scheme."""
    if not value:
        return None
    scheme, _, rest = value.partition(b" ")
    if not _SCHEME.match(scheme):
        raise Malformed("The header Authorization is malformed; send Authorization: Bearer TOKEN.")
    return rest.lstrip(b" ") if scheme.lower() == b"bearer" else None
