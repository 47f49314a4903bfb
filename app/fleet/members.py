"""Who is there: the heartbeats of all processes of a fleet, and what they disagree about.

Pure but for the memory of what was heard. Heartbeats come over a bus that others may write to, so
they are untrusted in size and shape.
"""

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

import orjson

from app.fleet.control import MAX_REVISION, REPLICA

BEAT_S: Final = 1.0
ALIVE_S: Final = 3.5
"""A member that was not heard for this long has gone."""
CLOCK_S: Final = 5.0
"""Clocks may differ by this much: what hangs on them is measured in tens of seconds."""
CROWDED_S: Final = 0.25
"""While there is no room for more members, it is looked this often for who has gone."""
MAX_BEAT: Final = 4096
MAX_MEMBERS: Final = 1000
MAX_KEYS: Final = 32

_DIGEST: Final = re.compile(r"[0-9a-f]{16}\Z")
_VERSION: Final = re.compile(r"[A-Za-z0-9.+!_-]{1,64}\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """What one process says about itself.

    Attributes:
        replica: Of which it is; all workers of a server are one replica.
        pid: Tells workers of a replica apart.
        started: POSIX time.
        clock: Its POSIX time when it said this.
        version: Of the server.
        configuration: Fingerprint of its settings.
        keys: Fingerprints of its ``[secrets] keys``, newest first.
        catalog: Fingerprint of the tools that it serves.
        revision: Of the control document that it acts on.
        reloads: How many of the reloads that administrators asked for it has done.
        draining: Whether it wants no further requests.
        leaving: It says goodbye.
    """

    replica: str
    pid: int
    started: float
    clock: float
    version: str
    configuration: str
    keys: tuple[str, ...]
    catalog: str
    revision: int
    reloads: int
    draining: bool = False
    leaving: bool = False

    @property
    def name(self) -> str:
        """Which process it is."""
        return f"{self.replica}/{self.pid}"

    def encode(self) -> bytes:
        return orjson.dumps(asdict(self))


_FIELDS: Final = frozenset(each.name for each in fields(Member))


def parse_member(data: bytes) -> Member | None:
    """The heartbeat that ``encode`` made; None: it is something else.

    Fields that are not known are left out: a newer version may say more.
    """
    if len(data) > MAX_BEAT:
        return None
    try:
        said = orjson.loads(data)
        if not _is_sound(said):
            return None
        known = {key: value for key, value in said.items() if key in _FIELDS}
        return Member(**{**known, "keys": tuple(said["keys"])})
    except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError):
        return None


def _is_sound(said: dict[str, Any]) -> bool:
    keys = said["keys"]
    digests = (said["configuration"], said["catalog"], *keys)
    return (
        type(keys) is list
        and len(keys) <= MAX_KEYS
        and _is_text(said["replica"], REPLICA)
        and _is_text(said["version"], _VERSION)
        and all(_is_text(each, _DIGEST) for each in digests)
        and all(_is_count(said[name]) for name in ("pid", "revision", "reloads"))
        and all(_is_instant(said[name]) for name in ("started", "clock"))
        and all(type(said.get(name, False)) is bool for name in ("draining", "leaving"))
    )


def _is_text(value: Any, form: re.Pattern[str]) -> bool:
    return type(value) is str and form.match(value) is not None


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MAX_REVISION


def _is_instant(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < 1e12


@dataclass(frozen=True, slots=True)
class Heard:
    """A member, as it was heard last.

    Attributes:
        at: When, in seconds that only grow.
        ahead_s: How far its clock was ahead of this one's.
    """

    member: Member
    at: float
    ahead_s: float


class Members:
    """Everybody who was heard lately, this process among them.

    Args:
        own: Name of this process: it is always there, whatever the bus does.
        clock: Gives POSIX time.
        monotonic: Gives seconds that only grow.
    """

    def __init__(
        self, own: str, *, clock: Callable[[], float], monotonic: Callable[[], float]
    ) -> None:
        self._own = own
        self._clock = clock
        self._monotonic = monotonic
        self._heard: dict[str, Heard] = {}
        self._looked_at = monotonic()

    def hear(self, data: bytes) -> bool:
        """Take in a heartbeat. Returns whether it was one, and there was room."""
        member = parse_member(data)
        if member is None:
            return False
        if member.name == self._own:
            return True  # what this process says about itself is known first hand
        if member.leaving:
            self._heard.pop(member.name, None)
            return True
        if len(self._heard) >= MAX_MEMBERS and member.name not in self._heard:
            # Only then, and not each time: whoever shouts must not cost a look at all.
            self._forget_silent(at_most_each_s=CROWDED_S)
            if len(self._heard) >= MAX_MEMBERS:
                return False
        self._note(member)
        return True

    def is_here(self, member: Member) -> None:
        """What this process is now."""
        self._note(member)

    def living(self) -> list[Heard]:
        """Who was heard lately, in order of their names."""
        self._forget_silent()
        return [self._heard[name] for name in sorted(self._heard)]

    def replicas(self) -> frozenset[str]:
        """The ids of living replicas."""
        return frozenset(heard.member.replica for heard in self.living())

    def behind(self, revision: int) -> list[str]:
        """Names of those that do not act on a revision yet."""
        return [heard.member.name for heard in self.living() if heard.member.revision < revision]

    def not_reloaded(self, reloads: int) -> list[str]:
        """Names of those that have not done so many reloads."""
        return [heard.member.name for heard in self.living() if heard.member.reloads < reloads]

    def _note(self, member: Member) -> None:
        now = self._monotonic()
        self._heard[member.name] = Heard(member, now, member.clock - self._clock())

    def _forget_silent(self, *, at_most_each_s: float = 0.0) -> None:
        now = self._monotonic()
        if now - self._looked_at < at_most_each_s:
            return
        self._looked_at = now
        self._heard = {
            name: heard
            for name, heard in self._heard.items()
            if name == self._own or now - heard.at < ALIVE_S
        }


def disagreements(living: Sequence[Heard]) -> tuple[str, ...]:
    """What a fleet should agree about and does not, as sentences; none if all is well."""
    members = [heard.member for heard in living]
    found = []
    if _differ(member.configuration for member in members):
        found.append("configuration: not all replicas have the same settings")
    if _unreadable(members):
        found.append("keys: what one replica seals another one cannot open ([secrets] keys)")
    ahead = [heard.ahead_s for heard in living]
    if ahead and max(ahead) - min(ahead) > CLOCK_S:
        found.append("clock: clocks of replicas differ by more than 5 s")
    return tuple(found)


def has_one_catalog(living: Sequence[Heard]) -> bool:
    """Whether everybody serves the same tools."""
    return not _differ(heard.member.catalog for heard in living)


def _differ(values: Iterable[str]) -> bool:
    return len(set(values)) > 1


def _unreadable(members: Collection[Member]) -> bool:
    """Whether somebody seals with a key that somebody else does not have."""
    sealing = {member.keys[0] for member in members if member.keys}
    return any(not sealing <= set(member.keys) for member in members)
