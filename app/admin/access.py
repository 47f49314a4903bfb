"""Who may administer: the head of a request, before anything else of it is looked at."""

import time
from collections import deque
from collections.abc import Callable
from typing import Final

from app.auth.api_keys import ApiKeys
from app.auth.credentials import Credential, find_credential
from app.auth.problems import Malformed, Refused
from app.http.gate import Gate
from app.protocol.errors import InvalidRequest, TooManyRequests, Unauthorized
from app.protocol.headers import HeaderMap

WRONG: Final = 20
WRONG_S: Final = 60.0
"""So many wrong keys in this time are answered and logged one by one. Whoever has the right key
gets in whatever others try, so that nobody can shut administrators out."""

CHALLENGE: Final = ((b"www-authenticate", b'Bearer realm="mcp-tool-server admin"'),)


class Access:
    """Decides who administers.

    Args:
        keys: Gives the keys that count.
        clock: Gives POSIX time.
        monotonic: Gives seconds that only grow.
    """

    def __init__(
        self,
        gate: Gate,
        keys: Callable[[], ApiKeys],
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._gate = gate
        self._keys = keys
        self._clock = clock
        self._monotonic = monotonic
        self._wrong: deque[float] = deque(maxlen=WRONG)

    def administrator(self, headers: HeaderMap, query: bytes) -> str:
        """The id of the administrator's key.

        Raises:
            ProtocolError: 400, 401, 403, 421 or 429.
        """
        self._gate.check_sender(headers)
        try:
            credential = find_credential(headers, query)
            holder = self._keys().check(_key(credential), self._clock())
        except Malformed as malformed:
            raise InvalidRequest(str(malformed)) from None
        except Refused as refused:
            self._restrain()
            raise Unauthorized(str(refused), headers=CHALLENGE) from None
        return holder.credential_id or ""

    def check_scraper(self, headers: HeaderMap, query: bytes) -> None:
        """Who may read the metrics: an administrator; on loopback all who reach it.

        Raises:
            ProtocolError: As of ``administrator``.
        """
        if self._gate.is_loopback:
            self._gate.check_sender(headers)
        else:
            self.administrator(headers, query)

    def _restrain(self) -> None:
        now = self._monotonic()
        if len(self._wrong) == WRONG and now - self._wrong[0] < WRONG_S:
            wait_s = WRONG_S - (now - self._wrong[0])
            raise TooManyRequests("Too many wrong keys.", wait_s=wait_s, setting="admin.keys")
        self._wrong.append(now)


def _key(credential: Credential | None) -> bytes:
    if credential is None:
        raise Refused("A key is needed: send Authorization: Bearer KEY or X-API-Key: KEY.")
    return credential.text
