"""From the claims of a checked token to a principal."""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from app.auth.caller import Caller, Seal, measured, read_only_claims
from app.auth.problems import Expired, Refused
from app.settings import IssuerSettings

Claims = Mapping[str, Any]

MAX_ENTRIES: Final = 1000
MAX_ENTRY: Final = 256
"""Scopes, roles and approvals beyond these bounds are as if they were not there."""
MAX_IDENTIFIER: Final = 1024
"""Characters of a subject and of a ``jti``."""

_SCOPE_TOKEN: Final = re.compile(r"[\x21\x23-\x5B\x5D-\x7E]+\Z")  # RFC 6749, section 3.3
_MISSING: Final = object()


def check_times(claims: Claims, now: float, leeway_s: float, *, need_exp: bool) -> float | None:
    """Does it count now? Returns ``exp``: POSIX time from which it counts no longer.

    Source: RFC 7519, sections 4.1.4 to 4.1.6. ``iat`` in the future is refused as well: who made
    the token has a clock that cannot be believed about ``exp`` either.

    Raises:
        Refused: It is expired, not yet valid, or a time is no number.
    """
    expires_at = _time(claims, "exp")
    if expires_at is None and need_exp:
        raise Refused("The token has no exp.")
    if expires_at is not None and expires_at + leeway_s <= now:
        raise Expired("The token has expired.")
    not_before = _time(claims, "nbf")
    if not_before is not None and not_before - leeway_s > now:
        raise Refused("The token is not valid yet (nbf).")
    issued_at = _time(claims, "iat")
    if issued_at is not None and issued_at - leeway_s > now:
        raise Refused("The token was issued in the future (iat).")
    return expires_at


def caller_of(
    claims: Claims, settings: IssuerSettings, *, seal: Seal, expires_at: float | None
) -> Caller:
    """The principal that claims describe.

    Raises:
        Refused: They do not say who it is, or are too deep or too large.
    """
    size = measured(claims)
    paths = settings.claims
    subject = claim_at(claims, paths.subject)
    if not isinstance(subject, str) or not 0 < len(subject) <= MAX_IDENTIFIER:
        raise Refused(f"The token does not say who the caller is ({paths.subject}).")
    return Caller(
        issuer=settings.issuer,
        subject=subject,
        scopes=frozenset(
            scope for scope in _scopes(claims, paths.scopes) if _SCOPE_TOKEN.match(scope)
        ),
        claims=read_only_claims(claims),
        tenant=_text(claims, paths.tenant),
        roles=_names(claims, paths.roles),
        clearance=_text(claims, paths.clearance),
        approvals=_names(claims, paths.approvals),
        credential_id=token_id(claims),
        expires_at=expires_at,
        seal=seal,
        size=size,
    )


def token_id(claims: Claims) -> str | None:
    """``jti``, by which a token can be revoked.

    Raises:
        Refused: There is one that no list of revoked tokens could name.
    """
    identifier = claims.get("jti")
    if identifier is None:
        return None
    if not isinstance(identifier, str) or not 0 < len(identifier) <= MAX_IDENTIFIER:
        raise Refused("The token's jti is not a text of reasonable length.")
    return identifier


def claim_at(claims: Claims, path: str) -> Any:
    """A claim by its exact name, else by a dotted path; None where there is none.

    The exact name wins: names of claims may have dots, and often are URLs.
    """
    value = claims.get(path, _MISSING)
    if value is not _MISSING:
        return value
    node: Any = claims
    for step in path.split("."):
        if not isinstance(node, Mapping):
            return None
        node = node.get(step)
    return node


def _first(claims: Claims, paths: Iterable[str]) -> Any:
    return next((value for path in paths if (value := claim_at(claims, path)) is not None), None)


def _scopes(claims: Claims, paths: Iterable[str]) -> frozenset[str]:
    """A text is scopes with spaces between, and no other white space (RFC 6749, section 3.3)."""
    value = _first(claims, paths)
    return _texts([word for word in value.split(" ") if word] if isinstance(value, str) else value)


def _names(claims: Claims, paths: Iterable[str]) -> frozenset[str]:
    """A text is one name: names may have spaces, and a part of one is none."""
    value = _first(claims, paths)
    return _texts([value] if isinstance(value, str) else value)


def _texts(value: Any) -> frozenset[str]:
    """The texts of a list; anything else grants nothing."""
    if not isinstance(value, list):
        return frozenset()
    return frozenset(
        each for each in value[:MAX_ENTRIES] if isinstance(each, str) and 0 < len(each) <= MAX_ENTRY
    )


def _text(claims: Claims, paths: Iterable[str]) -> str | None:
    value = _first(claims, paths)
    return value if isinstance(value, str) and 0 < len(value) <= MAX_ENTRY else None


def _time(claims: Claims, name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    # JSON has no other numbers; `true` would count as 1 here.
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise Refused(f"The token's {name} is not a number.")
    return float(value)
