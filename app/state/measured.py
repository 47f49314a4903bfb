"""Stores and a bus whose operations are measured, whatever they are made of."""

import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from app.state.interface import Bus, Kept, Quota, Store, StoreFull, StoreUnavailable, Wait

T = TypeVar("T")

Observe = Callable[[str, float, str | None], None]
"""Told of an operation: its name, how long it took in seconds, and why it failed, in one word:
``unavailable`` or ``full``; None: it did not."""


async def _timed(observe: Observe, operation: str, coming: Awaitable[T]) -> T:
    began = time.perf_counter()
    try:
        found = await coming
    except StoreUnavailable as error:
        reason = "full" if isinstance(error, StoreFull) else "unavailable"
        observe(operation, time.perf_counter() - began, reason)
        raise
    observe(operation, time.perf_counter() - began, None)
    return found


class MeasuredStore:
    """Implements ``app.state.interface.Store`` with another one.

    Attributes:
        store: The other one.
    """

    def __init__(self, store: Store, observe: Observe) -> None:
        self.store = store
        self._observe = observe

    async def get(self, name: str) -> bytes | None:
        return await _timed(self._observe, "get", self.store.get(name))

    async def set(self, name: str, value: bytes, *, ttl_s: float, owner: str | None = None) -> None:
        coming = self.store.set(name, value, ttl_s=ttl_s, owner=owner)
        await _timed(self._observe, "set", coming)

    async def replace(
        self,
        name: str,
        before: bytes | None,
        after: bytes,
        *,
        ttl_s: float,
        owner: str | None = None,
    ) -> bool:
        coming = self.store.replace(name, before, after, ttl_s=ttl_s, owner=owner)
        return await _timed(self._observe, "replace", coming)

    async def take(
        self, name: str, value: bytes, *, ttl_s: float, owner: str | None = None
    ) -> Kept | None:
        coming = self.store.take(name, value, ttl_s=ttl_s, owner=owner)
        return await _timed(self._observe, "take", coming)

    async def delete(self, name: str) -> None:
        await _timed(self._observe, "delete", self.store.delete(name))

    def admit(self, quotas: Sequence[Quota]) -> Wait | Coroutine[Any, Any, Wait | None] | None:
        try:
            answer = self.store.admit(quotas)
        except StoreUnavailable:
            self._observe("admit", 0.0, "unavailable")
            raise
        if answer is None or isinstance(answer, Wait):
            return answer
        return _timed(self._observe, "admit", answer)


class MeasuredBus:
    """Implements ``app.state.interface.Bus`` with another one."""

    def __init__(self, bus: Bus, observe: Observe) -> None:
        self._bus = bus
        self._observe = observe
        self.subscribe = bus.subscribe
        self.on_return = bus.on_return

    async def publish(self, topic: str, message: bytes) -> None:
        await _timed(self._observe, "publish", self._bus.publish(topic, message))
