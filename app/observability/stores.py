"""Spans of round trips to state that servers share."""

from collections.abc import Awaitable, Coroutine, Sequence
from typing import Any, TypeVar

from app.observability.spans import Spans
from app.state.interface import Kept, Quota, Store, Wait

T = TypeVar("T")


class TracedStore:
    """A store whose answers are spans of the request that waits for them. Implements ``Store``.

    Args:
        name: Of the store. What is kept in it, and under which names, is in no span.
    """

    def __init__(self, store: Store, name: str, spans: Spans) -> None:
        self._store = store
        self._name = name
        self._spans = spans

    async def get(self, name: str) -> bytes | None:
        return await self._waited("get", self._store.get(name))

    async def set(self, name: str, value: bytes, *, ttl_s: float, owner: str | None = None) -> None:
        await self._waited("set", self._store.set(name, value, ttl_s=ttl_s, owner=owner))

    async def replace(
        self,
        name: str,
        before: bytes | None,
        after: bytes,
        *,
        ttl_s: float,
        owner: str | None = None,
    ) -> bool:
        replacing = self._store.replace(name, before, after, ttl_s=ttl_s, owner=owner)
        return await self._waited("replace", replacing)

    async def take(
        self, name: str, value: bytes, *, ttl_s: float, owner: str | None = None
    ) -> Kept | None:
        return await self._waited("take", self._store.take(name, value, ttl_s=ttl_s, owner=owner))

    async def delete(self, name: str) -> None:
        await self._waited("delete", self._store.delete(name))

    def admit(self, quotas: Sequence[Quota]) -> Wait | Coroutine[Any, Any, Wait | None] | None:
        counting = self._store.admit(quotas)
        if counting is None or isinstance(counting, Wait):
            return counting
        return self._waited("admit", counting)

    async def _waited(self, operation: str, answer: Awaitable[T]) -> T:
        span = self._spans.round_trip(self._name, operation)
        if span is None:
            return await answer
        with span:
            return await answer
