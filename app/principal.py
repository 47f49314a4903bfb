"""Who calls."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """A caller: issuer and subject, whatever token it shows.

    Attributes:
        issuer: Who vouches for the subject; None for an anonymous caller.
        subject: Stable name of the caller at the issuer; None for an anonymous caller.
        scopes: What the credential grants.
        claims: Further statements of the issuer.
        tenant: The organisation that the caller acts for.
    """

    issuer: str | None = None
    subject: str | None = None
    scopes: frozenset[str] = frozenset()
    claims: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    tenant: str | None = None


ANONYMOUS: Final = Principal()
