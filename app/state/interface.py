"""What keeps values for a while, and perhaps for several servers."""

from typing import Protocol


class StoreUnavailable(Exception):
    """The store cannot be reached. What depends on its answer must not guess it."""


class Store(Protocol):
    """Bytes by name, each for a time.

    Every method raises ``StoreUnavailable`` where the store cannot answer. Names are text of at
    most 512 characters, and made by this server: a client's words are hashed first.
    """

    async def get(self, name: str) -> bytes | None:
        """The value, or None where there is none or its time is over."""

    async def set(self, name: str, value: bytes, *, ttl_s: float) -> None:
        """Put a value in place of any other, for ``ttl_s`` seconds from now.

        There is no value without an end: a store that is only written grows for ever.
        """

    async def replace(self, name: str, before: bytes | None, after: bytes, *, ttl_s: float) -> bool:
        """Put ``after`` in place of ``before``, in one step, and say whether that was done.

        Args:
            before: The value that must be there; None: there must be none.
        """

    async def delete(self, name: str) -> None:
        """Forget a value; one that is not there is no error."""
