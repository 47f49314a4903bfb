"""The control document: everything that administrators have decided, as one immutable value.

Pure: documents in, documents out. Its encoding is what lies in the store, where others may have
written too, so it is read as strictly as what a client sends.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import orjson

from app.policy.rollouts import ON, Switch

FORMAT: Final = 1
MAX_BYTES: Final = 1024 * 1024
MAX_SWITCHES: Final = 2000
MAX_TENANTS: Final = 200
MAX_REVOKED: Final = 10_000
MAX_DRAINED: Final = 1000
MAX_NAME: Final = 256
"""Characters of a tool's or tenant's name, an issuer, or the id of a credential."""
MAX_REVISION: Final = 1 << 53
REVOCATION_MARGIN_S: Final = 300.0
"""A revocation outlives its credential by the largest leeway that an issuer can have."""
DRAINED_S: Final = 86_400.0
"""A replica that was drained and is not heard of any more is forgotten after this long."""

REPLICA: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}\Z")
_STAMP: Final = re.compile(r"[0-9a-f]{16}\Z")


class Unusable(ValueError):
    """What lies in the store is no control document that this version knows."""


class Full(ValueError):
    """There is no room in the document for that; the text says of what there are too many."""


class Epoch(NamedTuple):
    """Which document it is.

    Attributes:
        revision: Grows with every change.
        stamp: Random, of the change: a store that lost its last changes may see the same revision
            a second time.
    """

    revision: int = 0
    stamp: str = "0" * 16

    def encode(self) -> bytes:
        return b"%d:%b" % (self.revision, self.stamp.encode("ascii"))


def parse_epoch(data: bytes) -> Epoch | None:
    """The epoch that ``encode`` wrote; None: it is something else."""
    if len(data) > 40:
        return None
    revision, _, stamp = data.decode("latin-1").partition(":")
    if not (revision.isascii() and revision.isdigit() and _STAMP.match(stamp)):
        return None
    return Epoch(int(revision), stamp) if int(revision) <= MAX_REVISION else None


NO_EPOCH: Final = Epoch()
Credential = tuple[str, str]
"""Issuer and id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """What administrators have decided. Nothing, to begin with.

    Attributes:
        switches: By name of tool; a tool that is not named is there for everybody.
        revoked: POSIX time until which an entry is needed; None: for ever.
        drained: POSIX time since which a replica, by its id, is to get no further requests.
        reloads: How often a reload of all replicas was asked for.
    """

    epoch: Epoch = NO_EPOCH
    switches: Mapping[str, Switch] = field(default_factory=lambda: MappingProxyType({}))
    revoked: Mapping[Credential, float | None] = field(default_factory=lambda: MappingProxyType({}))
    drained: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    reloads: int = 0

    @property
    def revision(self) -> int:
        return self.epoch.revision

    # Changes. Each gives another document, without a new epoch: the store gives that.

    def with_switch(self, tool: str, switch: Switch) -> "Control":
        """A tool is there for those whom the switch admits."""
        others = {name: each for name, each in self.switches.items() if name != tool}
        return replace(self, switches=others if switch == ON else {**others, tool: switch})

    def with_revoked(self, credential: Credential, until: float | None) -> "Control":
        """A credential counts no longer.

        Args:
            until: POSIX time at which it would end by itself; None: never.
        """
        end = None if until is None else until + REVOCATION_MARGIN_S
        return replace(self, revoked={**self.revoked, credential: end})

    def with_restored(self, credential: Credential) -> "Control":
        """A credential counts again."""
        return replace(
            self, revoked={key: end for key, end in self.revoked.items() if key != credential}
        )

    def with_drained(self, replica: str, now: float) -> "Control":
        """A replica gets no further requests."""
        return replace(self, drained={replica: now, **self.drained})

    def with_undrained(self, replica: str) -> "Control":
        """A replica takes requests again."""
        return replace(
            self, drained={key: at for key, at in self.drained.items() if key != replica}
        )

    def with_reload(self) -> "Control":
        """All replicas are to load settings and tools again."""
        return replace(self, reloads=self.reloads + 1)

    def tidied(self, now: float, living: Iterable[str]) -> "Control":
        """The same without what time has made void.

        Args:
            living: Ids of replicas that are there.
        """
        there = frozenset(living)
        return replace(
            self,
            revoked={key: end for key, end in self.revoked.items() if end is None or end > now},
            drained={
                id: at for id, at in self.drained.items() if id in there or now - at < DRAINED_S
            },
        )

    def numbered(self, epoch: Epoch) -> "Control":
        """The same under another epoch."""
        return replace(self, epoch=epoch)

    def encode(self) -> bytes:
        """What lies in the store.

        Raises:
            Full: The document would be larger than replicas accept.
        """
        for what, there, most in (
            ("switches", len(self.switches), MAX_SWITCHES),
            ("revoked credentials", len(self.revoked), MAX_REVOKED),
            ("drained replicas", len(self.drained), MAX_DRAINED),
        ):
            if there > most:
                raise Full(f"There is room for {most} {what}, and all of it is taken.")
        revoked: dict[str, dict[str, float | None]] = {}
        for (issuer, id), end in self.revoked.items():
            revoked.setdefault(issuer, {})[id] = end
        data = orjson.dumps(
            {
                "format": FORMAT,
                "revision": self.epoch.revision,
                "stamp": self.epoch.stamp,
                "switches": {
                    name: {
                        "enabled": switch.enabled,
                        "percent": switch.percent,
                        "tenants": sorted(switch.tenants),
                    }
                    for name, switch in sorted(self.switches.items())
                },
                "revoked": revoked,
                "drained": dict(self.drained),
                "reloads": self.reloads,
            }
        )
        if len(data) > MAX_BYTES:
            raise Full(f"The control document would be larger than {MAX_BYTES} bytes.")
        return data


def parse_control(data: bytes) -> Control:
    """The document that ``encode`` wrote.

    Raises:
        Unusable: It is something else, or of another version of this server.
    """
    if len(data) > MAX_BYTES:
        raise Unusable("it is too large")
    try:
        return _read(orjson.loads(data))
    except orjson.JSONDecodeError:
        raise Unusable("it is not JSON") from None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, Unusable):
            raise
        raise Unusable("it is no control document") from None


def _read(document: Any) -> Control:
    if document["format"] != FORMAT:
        raise Unusable("another version of the server has written it")
    revoked = {
        (_name(issuer), _name(id)): None if end is None else _instant(end)
        for issuer, ids in document["revoked"].items()
        for id, end in ids.items()
    }
    stamp = document["stamp"]
    if not _STAMP.match(stamp):
        raise Unusable("it has no stamp")
    drained = {
        id: _instant(at) for id, at in document["drained"].items() if REPLICA.match(_name(id))
    }
    switches = {_name(name): _switch(each) for name, each in document["switches"].items()}
    if len(switches) > MAX_SWITCHES or len(revoked) > MAX_REVOKED or len(drained) > MAX_DRAINED:
        raise Unusable("it has too many entries")
    return Control(
        epoch=Epoch(_count(document["revision"]), stamp),
        switches=MappingProxyType(switches),
        revoked=MappingProxyType(revoked),
        drained=MappingProxyType(drained),
        reloads=_count(document["reloads"]),
    )


def _switch(document: Any) -> Switch:
    enabled, percent, tenants = document["enabled"], document["percent"], document["tenants"]
    if type(enabled) is not bool or type(tenants) is not list or len(tenants) > MAX_TENANTS:
        raise Unusable("a switch is none")
    if percent is not None and not 0 <= _count(percent) <= 100:
        raise Unusable("a percentage is none")
    return Switch(enabled=enabled, percent=percent, tenants=frozenset(map(_name, tenants)))


def _name(value: Any) -> str:
    if type(value) is not str or not 0 < len(value) <= MAX_NAME:
        raise Unusable("a name is none")
    return value


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= MAX_REVISION:
        raise Unusable("a number is none")
    return value


def _instant(value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value < 1e12:
        raise Unusable("an instant is none")
    return float(value)
