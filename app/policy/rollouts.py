"""Switches of administrators: for whom a tool is there at all, whatever the rules say.

A percentage is kept without remembering anybody: the place of a caller among a hundred follows
from the tool and from who calls, so it is the same on every replica and after every restart, and a
higher percentage adds callers and takes none away.
"""

import hashlib
from dataclasses import dataclass
from typing import Final

from app.principal import Principal

EVERYBODY: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """For whom one tool is there. By default for everybody.

    Attributes:
        enabled: False: for nobody, whatever the others say; they stay for when it is true again.
        percent: For so many of a hundred callers; None: for everybody, or for nobody beyond
            ``tenants`` where some are named.
        tenants: Their callers have it besides those of ``percent``: a tenant that tries
            something out keeps it while the percentage grows.
    """

    enabled: bool = True
    percent: int | None = None
    tenants: frozenset[str] = frozenset()

    @property
    def is_off(self) -> bool:
        """Whether nobody has the tool."""
        return not self.enabled or not (self.share or self.tenants)

    @property
    def share(self) -> int:
        """Of a hundred callers whose tenant is not named, so many have it."""
        if self.percent is not None:
            return self.percent
        return 0 if self.tenants else EVERYBODY

    @property
    def tells_callers_apart(self) -> bool:
        """Whether one caller may have the tool and another one not."""
        return not self.is_off and self.share < EVERYBODY

    def admits(self, tool: str, caller: Principal) -> bool:
        """Whether a caller has the tool, by its name as served."""
        if not self.enabled:
            return False
        if caller.tenant is not None and caller.tenant in self.tenants:
            return True
        return bucket(tool, caller) < self.share


ON: Final = Switch()


def bucket(tool: str, caller: Principal) -> int:
    """The place of a caller among a hundred, 0 to 99, for one tool.

    Callers without a credential are all in the same place: nothing that they say tells one of
    them from another, and what they say changes.
    """
    digest = hashlib.sha256(b"rollout 1")
    for part in (tool, caller.issuer or "", caller.subject or ""):
        data = part.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(data))
        digest.update(data)
    return int.from_bytes(digest.digest()[:8], "big") % EVERYBODY
