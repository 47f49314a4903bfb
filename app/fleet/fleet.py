"""This process among the others: it follows the control document, and is heard.

A change goes through three steps. Each process applies it and says so; listeners are told when
everybody has, so that the list that they fetch at once shows it, whichever replica they reach.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol

import structlog

from app.fleet.control import NO_EPOCH, Control, Unusable, parse_epoch
from app.fleet.keeping import Edit, Keeper
from app.fleet.members import BEAT_S, Heard, Member, Members, disagreements, has_one_catalog
from app.state.interface import Bus, Store, StoreUnavailable

CONTROL_TOPIC: Final = "fleet:control"
MEMBERS_TOPIC: Final = "fleet:members"
LOOK_S: Final = 0.5
"""Whatever the bus does, a change is noticed after this long at the latest."""
PAUSE_S: Final = 0.02
"""Between two looks at the store, however much the bus says."""
BARRIER_S: Final = 1.0
"""Listeners are told after this long at the latest, whoever has not applied the change."""
SETTLE_S: Final = 2.0
"""An administrator's answer waits this long for everybody to apply the change."""
DISAGREE_S: Final = 3.0
"""Replicas may differ for this long without a warning: a change reaches them one by one."""
GOODBYE_S: Final = 0.5

log = structlog.get_logger()


class Description(NamedTuple):
    """What a process says about itself in its heartbeats; see ``Member``."""

    configuration: str
    catalog: str
    reloads: int
    draining: bool


class Site(Protocol):
    """The process that acts on what administrators decide."""

    async def apply(self, control: Control) -> None:
        """Act on a document; nobody is told yet."""

    def tell(self) -> None:
        """Everybody acts on it: listeners may be told."""

    def describe(self) -> Description:
        """What this process is now."""


class Fleet:
    """One process of a fleet; of a fleet of one, where nothing is shared.

    Args:
        store: Holds the control document.
        replica: Id of this replica, which all its workers share.
        keys: Fingerprints of its keys, newest first.
        version: Of the server.
        clock: Gives POSIX time.
        monotonic: Gives seconds that only grow.

    Attributes:
        control: The document that this process acts on.
        members: Everybody who was heard lately.
        problem: Why the document cannot be followed now; None: it can.
        is_informed: Whether the store has ever said what was decided, and this process acts on it.
    """

    def __init__(
        self,
        store: Store,
        bus: Bus,
        site: Site,
        *,
        replica: str,
        pid: int,
        keys: tuple[str, ...],
        version: str,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.replica = replica
        self.control = Control()
        self.problem: str | None = None
        self.is_informed = False
        self._pid = pid
        self._bus = bus
        self._site = site
        self._keys = keys
        self._version = version
        self._clock = clock
        self._monotonic = monotonic
        self._started = clock()
        self._keeper = Keeper(store, clock=monotonic)
        self.members = Members(f"{replica}/{pid}", clock=clock, monotonic=monotonic)
        self._news = asyncio.Event()
        self._must_read = False
        self._beat_now = asyncio.Event()
        self._heard = asyncio.Event()
        self._untold = asyncio.Event()
        self._untold_since = 0.0
        self._failed = NO_EPOCH
        self._differs_since: dict[str, float] = {}
        self._warned: frozenset[str] = frozenset()
        self._tasks: list[asyncio.Task[None]] = []
        self._ends: list[Callable[[], None]] = []

    async def begin(self) -> None:
        """Act on the document as it is, before anything is served.

        A store that cannot be reached holds nothing up: ``problem`` says so.
        """
        self._ends = [
            self._bus.subscribe(CONTROL_TOPIC, self._hear_change),
            self._bus.subscribe(MEMBERS_TOPIC, self._hear_member),
            self._bus.on_return(self._look_whole),
        ]
        await self._follow_once()
        self._untold.clear()

    def join(self) -> None:
        """Be heard, and follow what changes: this process serves from now on."""
        self.members.is_here(self._member())
        self._tasks = [
            asyncio.create_task(_for_ever(step), name=f"fleet: {step.__name__}")
            for step in (self._follow, self._beat, self._tell)
        ]

    async def leave(self) -> None:
        """Say goodbye, so that nobody waits for this process."""
        for end in self._ends:
            end()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._tasks:
            with suppress(StoreUnavailable, TimeoutError):
                async with asyncio.timeout(GOODBYE_S):
                    await self._bus.publish(MEMBERS_TOPIC, self._member(leaving=True).encode())

    @property
    def is_waiting(self) -> bool:
        """Whether a change is applied here, and may not be applied everywhere."""
        return self._untold.is_set()

    def has_changed(self) -> None:
        """What ``Site.describe`` says is something else: let the others know at once."""
        self._beat_now.set()

    async def change(self, edit: Edit) -> Control:
        """Change the document for all replicas, and give the new one.

        Raises:
            StoreUnavailable: It was not written down, as far as anybody knows.
            Unusable, Contended, Full: As ``Keeper.change``.
        """
        await self._catch_up()
        changed = await self._keeper.change(
            lambda before: edit(before.tidied(self._clock(), self.members.replicas()))
        )
        self._news.set()
        # Where the bus is down they find it when they look.
        with suppress(StoreUnavailable):
            await self._bus.publish(CONTROL_TOPIC, changed.epoch.encode())
        return changed

    async def settled(self, is_behind: Callable[[Members], list[str]]) -> list[str]:
        """Wait until nobody is behind, for a bounded time. Returns who still is."""
        await self._until(lambda: not is_behind(self.members), SETTLE_S)
        return is_behind(self.members)

    def disagreements(self) -> tuple[str, ...]:
        """What replicas should agree about and do not, as sentences."""
        return disagreements(self.members.living())

    def detail(self) -> dict[str, Any]:
        """For readiness: whether all replicas are alike, and what this one is.

        Anybody may read it, so it names no machine.
        """
        own, living = self._member(), self.members.living()
        differ = disagreements(living)
        return {
            "configuration": own.configuration,
            "catalog": own.catalog,
            "revision": self.control.revision,
            "members": len(living),
            "agree": not differ,
            "disagreements": list(differ),
            "one_catalog": has_one_catalog(living),
            "one_revision": not self.members.behind(max(_revisions(living), default=0)),
        }

    # Following.

    def _hear_change(self, data: bytes) -> None:
        epoch = parse_epoch(data)
        if epoch is not None and epoch != self._keeper.newest.epoch:
            self._look_whole()

    def _look_whole(self) -> None:
        self._must_read = True
        self._news.set()

    async def _follow(self) -> None:
        await _set_within(self._news, LOOK_S)
        self._news.clear()
        await self._follow_once()
        await asyncio.sleep(PAUSE_S)

    async def _follow_once(self) -> None:
        whole, self._must_read = self._must_read, False
        try:
            control = await self._keeper.look(whole=whole)
        except (StoreUnavailable, Unusable) as error:
            control = self._keeper.newest  # what this process has written, or read before
            self._note_problem(f"{type(error).__name__}: {error}")
        else:
            self._note_problem(None)
        if control.epoch == self.control.epoch:
            self.is_informed = self._keeper.has_read
            return
        since = self._monotonic()
        try:
            await self._site.apply(control)
        except Exception:  # it is tried again; what was applied before goes on
            if control.epoch != self._failed:
                self._failed = control.epoch
                log.exception("control_not_applied", revision=control.revision)
            return
        self.control, self.is_informed = control, self._keeper.has_read
        log.info(
            "control_applied",
            revision=control.revision,
            switches=len(control.switches),
            revoked=len(control.revoked),
            drained=len(control.drained),
        )
        if not self.is_waiting:
            self._untold_since = since
        self._untold.set()
        self._beat_now.set()

    def _note_problem(self, problem: str | None) -> None:
        if problem is not None and self.problem is None:
            log.warning("control_not_followed", problem=problem)
        elif problem is None and self.problem is not None:
            log.info("control_followed", revision=self._keeper.newest.revision)
        self.problem = problem

    async def _tell(self) -> None:
        """Tell listeners of what was applied here as soon as everybody has applied it."""
        await self._untold.wait()
        left_s = self._untold_since + BARRIER_S - self._monotonic()
        await self._until(lambda: not self.members.behind(self.control.revision), left_s)
        self._untold.clear()
        self._site.tell()

    async def _catch_up(self) -> None:
        """Wait for what others know of: a store that was flushed gets its document back.

        Raises:
            StoreUnavailable: It does not get it back, so a change could not build on it.
            Unusable: What lies in the store is no document.
        """
        await self._keeper.look(whole=True)
        known = max(_revisions(self.members.living()), default=0)
        if not await self._until(lambda: self._keeper.newest.revision >= known, BARRIER_S):
            raise StoreUnavailable("another replica knows of newer decisions than the store has")

    # Being heard.

    def _member(self, *, leaving: bool = False) -> Member:
        described = self._site.describe()
        return Member(
            replica=self.replica,
            pid=self._pid,
            started=self._started,
            clock=self._clock(),
            version=self._version,
            configuration=described.configuration,
            keys=self._keys,
            catalog=described.catalog,
            revision=self.control.revision,
            reloads=described.reloads,
            draining=described.draining,
            leaving=leaving,
        )

    def _hear_member(self, data: bytes) -> None:
        if self.members.hear(data):
            self._wake()

    async def _beat(self) -> None:
        self._beat_now.clear()
        own = self._member()
        self.members.is_here(own)
        self._wake()
        with suppress(StoreUnavailable):  # they will think that it has gone, and it of them
            await self._bus.publish(MEMBERS_TOPIC, own.encode())
        self._compare()
        await _set_within(self._beat_now, BEAT_S)

    def _compare(self) -> None:
        """Say once what the fleet disagrees about, and once that it agrees again."""
        now, found = self._monotonic(), self.disagreements()
        self._differs_since = {each: self._differs_since.get(each, now) for each in found}
        lasting = frozenset(
            each for each, since in self._differs_since.items() if now - since >= DISAGREE_S
        )
        if lasting - self._warned:
            log.warning("fleet_disagrees", problems=sorted(lasting), members=self._shown())
            self._warned |= lasting
        elif self._warned and not found:
            log.info("fleet_agrees", members=self._shown())
            self._warned = frozenset()

    def _shown(self) -> list[str]:
        return [heard.member.name for heard in self.members.living()][:20]

    # Waiting.

    def _wake(self) -> None:
        heard, self._heard = self._heard, asyncio.Event()
        heard.set()

    async def _until(self, is_so: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until something is so, which is looked at whenever anybody is heard."""
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, timeout_s)):
                while not is_so():
                    await self._heard.wait()
        return is_so()


def _revisions(living: Sequence[Heard]) -> Iterator[int]:
    return (heard.member.revision for heard in living)


async def _set_within(event: asyncio.Event, timeout_s: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await event.wait()


async def _for_ever(step: Callable[[], Coroutine[Any, Any, None]]) -> None:
    while True:
        try:
            await step()
        except Exception:  # a bug of ours; what it does is needed all the same
            log.exception("fleet_step_failed", step=step.__name__)
            await asyncio.sleep(BEAT_S)
