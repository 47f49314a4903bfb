"""What keeps values for a while, and perhaps for several servers."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple, Protocol


class StoreUnavailable(Exception):
    """The store cannot be reached. What depends on its answer must not guess it."""


class StoreFull(StoreUnavailable):
    """There is no room for a new value."""


class Kept(NamedTuple):
    """A value, and for how many more seconds it is there by the clock of the store."""

    value: bytes
    left_s: float


class Quota(NamedTuple):
    """At most ``capacity`` admissions under a name in any ``period_s`` seconds.

    Attributes:
        name: Belongs to one period: what is counted by another one has another name.
        is_anonymous: Whether somebody who is nobody in particular can make up such names. A store
            that has room for so many names keeps some of it for the others.
    """

    name: str
    capacity: int
    period_s: float
    is_anonymous: bool = False


class Wait(NamedTuple):
    """Not admitted.

    Attributes:
        quota: Place of the quota that has room last.
        seconds: Until all of them have room, if nobody else is admitted; above 0.
    """

    quota: int
    seconds: float


class Store(Protocol):
    """Bytes by name, each for a time; and what was let through lately, by name.

    Every method raises ``StoreUnavailable`` where the store cannot answer. Names are text of at
    most 512 characters, and made by this server: a client's words are hashed first.
    """

    async def get(self, name: str) -> bytes | None:
        """The value, or None where there is none or its time is over."""

    async def set(self, name: str, value: bytes, *, ttl_s: float, owner: str | None = None) -> None:
        """Put a value in place of any other, for ``ttl_s`` seconds from now.

        There is no value without an end: a store that is only written grows for ever.

        Args:
            owner: On whose behalf, so that nobody takes all the room; empty: of somebody who is
                nobody in particular; None: of the server itself. A name has one owner: whoever
                writes it again gives the same.

        Raises:
            StoreFull: There is no room, or the owner has used up its part.
        """

    async def replace(
        self,
        name: str,
        before: bytes | None,
        after: bytes,
        *,
        ttl_s: float,
        owner: str | None = None,
    ) -> bool:
        """Put ``after`` in place of ``before``, in one step, and say whether that was done.

        Args:
            before: The value that must be there; None: there must be none.
            owner: As of ``set``.

        Raises:
            StoreFull: As ``set``.
        """

    async def take(
        self, name: str, value: bytes, *, ttl_s: float, owner: str | None = None
    ) -> Kept | None:
        """Put a value where there is none, or give the one that is there, in one step.

        Args:
            owner: As of ``set``.

        Returns:
            None: It was put there. Else what is there.

        Raises:
            StoreFull: As ``set``.
        """

    async def delete(self, name: str) -> None:
        """Forget a value; one that is not there is no error."""

    def admit(self, quotas: Sequence[Quota]) -> Wait | Coroutine[Any, Any, Wait | None] | None:
        """Count one admission under each of the quotas if all have room, else under none.

        That is one step, whoever else asks at the same time, and exact: of the admissions under a
        name, the one that comes ``capacity`` after another comes at least ``period_s`` later. So a
        store keeps the instants of the last ``capacity`` ones, and forgets a name ``period_s``
        after its last. Whose clock it is counted by is for the store to say: all who share one
        count by the same.

        Args:
            quotas: With different names.

        Returns:
            None: admitted. A coroutine gives the same where it must be waited for; without it a
            call is cheaper by several microseconds, and this is done for every call.
        """


class Bus(Protocol):
    """Tells all servers of a fleet something, once, as far as they can be reached.

    Nothing is kept: who does not listen at that moment does not hear it, and a subscription that
    has just begun may not have reached the others.
    """

    def subscribe(self, topic: str, hear: Callable[[bytes], None]) -> Callable[[], None]:
        """Hear what is published on a topic, also by this server. Returns what ends that.

        Args:
            hear: Called in the event loop; what it raises is the caller's bug.
        """

    def on_return(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Be told when messages may have been missed: nothing was heard for a while, and now
        everything is again. Returns what ends that.

        Args:
            callback: Called in the event loop.
        """

    async def publish(self, topic: str, message: bytes) -> None:
        """Tell everybody.

        Raises:
            StoreUnavailable: It could not be told to the others.
        """
