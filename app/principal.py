"""Who calls."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, NamedTuple


def read_only(value: Any) -> Any:
    """JSON that nobody can change: it is shared by all requests of one token."""
    if isinstance(value, dict):
        return MappingProxyType({key: read_only(each) for key, each in value.items()})
    if isinstance(value, list):
        return tuple(read_only(each) for each in value)
    return value


class Grants(NamedTuple):
    """What rules look at: two callers with equal grants see and may call the same tools.

    Attributes:
        authenticated: Whether the caller showed a credential.
    """

    scopes: frozenset[str] = frozenset()
    roles: frozenset[str] = frozenset()
    clearance: str | None = None
    tenant: str | None = None
    approvals: frozenset[str] = frozenset()
    authenticated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Principal:
    """A caller: issuer and subject, whatever token it shows.

    Attributes:
        issuer: Who vouches for the subject; None for an anonymous caller, ``api-key`` for a key
            of this server's own.
        subject: Stable name of the caller at the issuer; None for an anonymous caller.
        scopes: What the credential grants.
        claims: Further statements of the issuer.
        tenant: The organisation that the caller acts for.
        roles: What the caller is.
        clearance: How far the caller is trusted; one of ``[auth] clearances``.
        approvals: Who has agreed to what the caller does.
        credential_id: ``jti`` of the token or id of the key, for logs; never the credential.
        expires_at: POSIX time from which the credential counts no longer; None: never.
        grants: The same as rules see it.
        found: What the rules of one snapshot have given this caller; the registry's alone.
    """

    issuer: str | None = None
    subject: str | None = None
    scopes: frozenset[str] = frozenset()
    claims: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    tenant: str | None = None
    roles: frozenset[str] = frozenset()
    clearance: str | None = None
    approvals: frozenset[str] = frozenset()
    credential_id: str | None = None
    expires_at: float | None = None
    grants: Grants = field(init=False, repr=False)
    found: list[Any] = field(init=False, repr=False, default_factory=lambda: [None, None])

    def __post_init__(self) -> None:
        grants = Grants(
            self.scopes,
            self.roles,
            self.clearance,
            self.tenant,
            self.approvals,
            self.issuer is not None,
        )
        object.__setattr__(self, "grants", grants)

    @property
    def identity(self) -> tuple[str | None, str | None]:
        """What stays when the token is refreshed."""
        return self.issuer, self.subject


ANONYMOUS: Final = Principal()
