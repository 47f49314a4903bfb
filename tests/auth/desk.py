"""An authenticator in this process, with a clock that is set by hand, and its answers read."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from app.auth.authenticator import Authenticator
from app.auth.revocation import Revocations
from app.principal import Principal
from app.protocol.errors import ProtocolError
from app.protocol.headers import HeaderMap
from app.settings import Settings
from tests.support.waiting import eventually

PUBLIC_URL: Final = "http://127.0.0.1:8000"
_ONE: Final = r'[a-z_]+="[\x20\x21\x23-\x5B\x5D-\x7E]*"'
_CHALLENGE: Final = re.compile(rf"Bearer {_ONE}(?:, {_ONE})*")
_PARAMETER: Final = re.compile(r'([a-z_]+)="([^"]*)"')


class Clock:
    """POSIX time that passes when it is told to; it begins at the real time."""

    def __init__(self) -> None:
        self.now = float(int(time.time()))

    def __call__(self) -> float:
        return self.now

    def passes(self, seconds: float) -> None:
        self.now += seconds


def settings_of(**auth: Any) -> Settings:
    return Settings.model_validate({"server": {"public_url": PUBLIC_URL}, "auth": auth})


def bearer(token: str) -> HeaderMap:
    return HeaderMap([(b"authorization", b"Bearer " + token.encode("utf-8"))])


@asynccontextmanager
async def desk(
    clock: Callable[[], float] = time.time,
    *,
    previous: Authenticator | None = None,
    revocations: Revocations | None = None,
    **auth: Any,
) -> AsyncIterator[Authenticator]:
    """A started authenticator with these settings of `[auth]`."""
    authenticator = Authenticator(
        settings_of(**auth), previous=previous, revocations=revocations, clock=clock
    )
    await authenticator.start()
    try:
        yield authenticator
    finally:
        await authenticator.stop()


async def refusal_of(
    authenticator: Authenticator, headers: HeaderMap | str, query: bytes = b""
) -> ProtocolError:
    """The refusal that a request gets; it must get one."""
    headers = bearer(headers) if isinstance(headers, str) else headers
    with pytest.raises(ProtocolError) as caught:
        await authenticator.authenticate(headers, query)
    return caught.value


async def accepted(authenticator: Authenticator, token: str) -> Principal:
    """The principal of a token; it must count."""
    return await authenticator.authenticate(bearer(token), b"")


def challenge_of(refusal: ProtocolError) -> dict[str, str]:
    """The parameters of `WWW-Authenticate`, which must be there once and be well-formed."""
    (value,) = [value for name, value in refusal.headers if name == b"www-authenticate"]
    text = value.decode("ascii")
    assert _CHALLENGE.fullmatch(text), text
    parameters = _PARAMETER.findall(text)
    assert len(dict(parameters)) == len(parameters), text
    return dict(parameters)


async def soon(probe: Callable[[], Any], what: str) -> None:
    """Let the loop run until `probe` answers something true."""
    await asyncio.to_thread(eventually, probe, what)
