"""A principal that remembers what vouched for it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from app.principal import Principal


class Seal:
    """Stands for one issuer or key with settings as they are.

    It is the same object as long as a credential that was accepted under it would be accepted
    again; so a principal can be asked whether it still counts, without keeping its credential.
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Caller(Principal):
    """A principal as this package makes it."""

    seal: Seal = field(repr=False)


def read_only(value: Any) -> Any:
    """JSON that nobody can change: it is shared by all requests of one token."""
    if isinstance(value, dict):
        return MappingProxyType({key: read_only(each) for key, each in value.items()})
    if isinstance(value, list):
        return tuple(read_only(each) for each in value)
    return value


def read_only_claims(claims: Mapping[str, Any]) -> Mapping[str, Any]:
    """Claims for ``Principal.claims``."""
    return MappingProxyType({name: read_only(value) for name, value in claims.items()})
