"""Cookies that only this server can make and read, and that end by themselves."""

import contextlib
import hashlib
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from app.protocol.jsonrpc import canonical, dumps, loads
from app.protocol.sealed import KeyRing, Sealer, Unopened

MAX_COOKIE: Final = 4096
"""Characters; browsers keep no longer ones."""


class SealedCookies:
    """Values that a browser carries from one step to the next, sealed.

    Args:
        purpose: A value of another purpose does not open.
        is_secure: Whether browsers come by https.
        path: Where they are sent to, where ``is_secure`` does not decide it.
        clock: Gives POSIX time.
        random: Gives that many random bytes.
    """

    def __init__(
        self,
        keys: KeyRing,
        *,
        purpose: str,
        is_secure: bool,
        path: str,
        clock: Callable[[], float] = time.time,
        random: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self._sealer = Sealer(keys, purpose=purpose, max_characters=MAX_COOKIE)
        self._is_secure, self._path = is_secure, path
        self._clock, self._random = clock, random

    def keep(
        self, response: Response, name: str, value: Any, *, bound_to: Sequence[str], for_s: int
    ) -> None:
        """Give a value to the browser.

        Args:
            bound_to: What is known again when it comes back; it is not in the cookie.
        """
        token = self._sealer.seal(
            dumps(value),
            bound_to=_digest(bound_to),
            expires_at=self._clock() + for_s,
            nonce=self._random(12),
        )
        self._set(response, name, token, for_s)

    def forget(self, response: Response, name: str) -> None:
        self._set(response, name, "", 0)

    def read(self, request: Request, name: str, *, bound_to: Sequence[str]) -> Any:
        """The value that this very browser was given; None where it has none that counts."""
        token = request.cookies.get(self._name(name), "")
        with contextlib.suppress(Unopened):
            return loads(self._sealer.open(token, bound_to=_digest(bound_to), now=self._clock()))
        return None

    def _set(self, response: Response, name: str, value: str, for_s: int) -> None:
        response.set_cookie(
            self._name(name),
            value,
            max_age=for_s,
            path="/" if self._is_secure else self._path,
            secure=self._is_secure,
            httponly=True,
            # Sent when the issuer leads the browser back, and not with a form of another site.
            samesite="lax",
        )

    def _name(self, name: str) -> str:
        # With __Host- nobody but this very host can set it, so that no neighbour among its
        # sub-domains can slip in a login of his own. The prefix demands https, and the path /.
        return f"__Host-{name}" if self._is_secure else name


def _digest(parts: Sequence[str]) -> bytes:
    return hashlib.sha256(canonical(list(parts))).digest()
