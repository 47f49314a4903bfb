"""A principal that remembers what vouched for it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from app.auth.problems import Refused
from app.principal import Principal, read_only

MAX_DEPTH: Final = 64
"""Of claims; no issuer nests them by more than a handful."""
MAX_CLAIMS: Final = 64 * 1024
"""Characters of claims. A token of its own cannot have as many; an answer of an issuer can."""


class Seal:
    """Stands for one issuer or key with settings as they are.

    It is the same object as long as a credential that was accepted under it would be accepted
    again; so a principal can be asked whether it still counts, without keeping its credential.
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Caller(Principal):
    """A principal as this package makes it.

    Attributes:
        size: Of its claims; see ``measured``.
        token_digest: Of a token without ``jti``: what records name it by. Nobody finds a token by
            its hash.
    """

    seal: Seal = field(repr=False)
    size: int = field(default=0, repr=False)
    token_digest: str | None = None


def measured(claims: Mapping[str, Any]) -> int:
    """About how many characters claims have.

    Raises:
        Refused: They are deeper or larger than anything here should walk through or keep.
    """
    size = depth = 0
    level: list[Any] = [claims]
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise Refused("The token's claims are nested too deeply.")
        below: list[Any] = []
        for node in level:
            size += 1 + len(node)
            is_object = isinstance(node, Mapping)
            if is_object:
                size += sum(map(len, node))
            for each in node.values() if is_object else node:
                if isinstance(each, str):
                    size += len(each)
                elif isinstance(each, dict | list):
                    below.append(each)
        level = below
    if size > MAX_CLAIMS:
        raise Refused("The token's claims are too large.")
    return size


def read_only_claims(claims: Mapping[str, Any]) -> Mapping[str, Any]:
    """Claims for ``Principal.claims``."""
    return MappingProxyType({name: read_only(value) for name, value in claims.items()})
