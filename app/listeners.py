"""Looks after those who listen: a credential may be revoked before its time."""

import asyncio
from collections.abc import Callable
from typing import Final, NoReturn

import structlog

from app.auth.authenticator import Authenticator
from app.methods.subscriptions import Hub, Stream
from app.protocol.errors import Unauthorized, Unavailable
from app.protocol.headers import HeaderMap

LOOK_S: Final = 5.0
"""Credentials of listeners are looked at anew this often, as their requests would be."""
LOOK_AT_ONCE: Final = 50
"""Listeners whose credentials are looked at without a pause for others."""

log = structlog.get_logger()


class Listeners:
    """Asks about the credentials of listeners again and again.

    Args:
        authenticator: Gives the one of now.
        is_early: Whether a decision of administrators is not applied everywhere yet: who is looked
            at then might be told of it too soon.
    """

    def __init__(
        self,
        hub: Hub,
        *,
        authenticator: Callable[[], Authenticator],
        is_early: Callable[[], bool],
    ) -> None:
        self._hub = hub
        self._authenticator = authenticator
        self._is_early = is_early

    async def look_after(self) -> NoReturn:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            if self._is_early():
                continue
            streams = self._hub.authenticated()
            while streams:
                some, streams = streams[:LOOK_AT_ONCE], streams[LOOK_AT_ONCE:]
                await asyncio.gather(*map(self._look_after, some))
                await asyncio.sleep(0)

    async def _look_after(self, stream: Stream) -> None:
        credential = stream.credential or HeaderMap(())
        authenticator = self._authenticator()
        try:
            principal = await authenticator.authenticate(credential, b"")
            # Not what the settings before said, if they changed while the issuer was asked.
            if authenticator is self._authenticator():
                self._hub.check(stream, principal)
        except Unauthorized:
            if authenticator is self._authenticator():
                stream.refuse()
        except Unavailable:
            pass  # nobody can say now
        except Exception:  # a bug of ours, which must not end the looking after all others
            log.exception("listener_check_failed")
