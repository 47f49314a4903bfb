"""What is inside of a store, where the outside shows nothing."""

from typing import Any

from app.state.measured import MeasuredStore
from app.state.redis_store import RedisStore


def of_redis(store: Any) -> RedisStore:
    """The store in Redis that is measured."""
    assert isinstance(store, MeasuredStore) and isinstance(store.store, RedisStore)
    return store.store
