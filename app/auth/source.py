"""One configured issuer: everything that decides about its tokens."""

import asyncio
import time
from collections.abc import Callable
from typing import Final, NamedTuple

import orjson

from app.auth.audience import Audiences
from app.auth.caller import Caller, Seal
from app.auth.claims import caller_of, check_times
from app.auth.credentials import digest_of
from app.auth.introspection import Introspector
from app.auth.issuer import Issuer
from app.auth.keys import KeySet, NoKeySet, parse_key_set
from app.auth.login import Login
from app.auth.problems import IssuerUnavailable, Refused, UnusableFile
from app.auth.restraint import RETRY_S, Lately
from app.auth.signatures import signed_claims
from app.auth.tokens import Unverified
from app.settings import IssuerSettings

MAX_REFUSED: Final = 1000
REFUSED_S: Final = 5.0
"""A token that an issuer would not vouch for is refused without asking for this long."""
MAX_VOUCHED: Final = 10_000
VOUCHED_S: Final = 86_400.0
"""And one that it did vouch for is asked about before strangers for this long."""


class Checked(NamedTuple):
    """A token that counts.

    Attributes:
        until: POSIX time until which this need not be checked again; it may have passed.
    """

    caller: Caller
    until: float


class Source:
    """Checks the tokens of one issuer.

    Args:
        resource: The URL that they must be made for.
        static: Keys of ``keys_file``.
        secret: For introspection, where it is configured.
        login_secret: For logging users in, likewise.
        clock: POSIX time.

    Attributes:
        login: Logs its users in to pages of this server, where that is configured.
        seal: Of every principal that comes from here.
        owner: Who stops it; see ``Authenticator.start``.
    """

    def __init__(
        self,
        settings: IssuerSettings,
        resource: str,
        *,
        static: KeySet | None = None,
        secret: str | None = None,
        login_secret: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings
        self.resource = resource
        self.static = static
        self.secret = secret
        self.login_secret = login_secret
        self.seal = Seal()
        self.owner: object = None
        self.issuer = Issuer(settings, static=static, clock=clock)
        self._clock = clock
        self._audiences = Audiences(resource, settings.audiences)
        asks = settings.introspection
        self.introspector = (
            Introspector(self.issuer, asks, self._audiences, secret=secret, clock=clock)
            if asks is not None and secret is not None
            else None
        )
        browser = settings.browser
        self.login = (
            Login(self.issuer, browser, secret=login_secret, clock=clock)
            if browser is not None
            else None
        )
        self._asking: dict[bytes, asyncio.Task[Checked]] = {}
        self._refused = Lately(REFUSED_S, MAX_REFUSED)
        self._vouched = Lately(VOUCHED_S, MAX_VOUCHED)

    def is_same(self, other: "Source") -> bool:
        """Whether a token that counts here counts there as well."""
        return self.marks == other.marks

    @property
    def marks(self) -> tuple[object, ...]:
        """All that a decision about a token comes from."""
        own = self.static.marks if self.static is not None else None
        return self.settings, self.resource, own, self.secret, self.login_secret

    def start(self) -> None:
        """Begin to fetch keys; waits for nothing."""
        self.issuer.start()

    async def stop(self) -> None:
        """End what runs; who waits for it is told that the issuer is not to be had."""
        asking = list(self._asking.values())
        for task in asking:
            task.cancel()
        if asking:
            await asyncio.wait(asking)
        await self.issuer.stop()

    async def check_jwt(self, token: bytes, unverified: Unverified) -> Checked:
        """Check a JWT whose ``iss`` is this issuer.

        Raises:
            Refused: It does not count.
            IssuerUnavailable: Nobody can say now.
        """
        if self.introspector is not None and not await self.issuer.has_keys():
            return await self.check_opaque(token)
        claims = await signed_claims(self.issuer, token, unverified.header, self.settings)
        if not self._audiences.accept(claims.get("aud")):
            raise Refused("The token was not made for this server (aud).")
        now = self._clock()
        expires_at = check_times(claims, now, self.settings.leeway_s, need_exp=True)
        caller = caller_of(claims, self.settings, seal=self.seal, expires_at=expires_at)
        # The leeway is for clocks that differ, and makes no token longer: beyond `exp` it is
        # checked anew each time.
        return Checked(caller, min(expires_at or now, self.issuer.counts_until))

    async def check_opaque(self, token: bytes) -> Checked:
        """Ask the issuer about a token. Requests with the same one at once share one question.

        Raises:
            Refused: It does not count.
            IssuerUnavailable: Nobody can say now.
        """
        digest = digest_of(token)
        if self._refused.has(digest, self._clock()):
            raise Refused("The token is not active.")
        task = self._asking.get(digest)
        if task is None:
            task = asyncio.create_task(self._ask(token, digest), name="introspection")
            self._asking[digest] = task
            task.add_done_callback(lambda done: self._answered(digest, done))
        # Not awaited itself: a caller that leaves must not take it along.
        await asyncio.wait({task})
        if task.cancelled():
            raise IssuerUnavailable(RETRY_S)
        return task.result()

    async def _ask(self, token: bytes, digest: bytes) -> Checked:
        if self.introspector is None or self.settings.introspection is None:
            raise Refused("Its issuer cannot be asked about this token.")
        is_stranger = not self._vouched.has(digest, self._clock())
        try:
            claims, expires_at = await self.introspector.ask(token, is_stranger=is_stranger)
            caller = caller_of(claims, self.settings, seal=self.seal, expires_at=expires_at)
        except Refused:
            self._refused.add(digest, self._clock())
            raise
        self._vouched.add(digest, self._clock())
        until = self._clock() + self.settings.introspection.cache_s
        return Checked(caller, until if expires_at is None else min(until, expires_at))

    def _answered(self, digest: bytes, task: asyncio.Task[Checked]) -> None:
        del self._asking[digest]
        if not task.cancelled():
            task.exception()  # looked at, even if everybody has left


def static_keys(settings: IssuerSettings) -> KeySet | None:
    """The keys of ``keys_file``; None where there is no such file.

    Raises:
        UnusableFile: It cannot be read, or none of its keys can be used.
    """
    file = settings.keys_file
    if file is None:
        return None
    try:
        keys = parse_key_set(orjson.loads(file.read_bytes()), settings.algorithms)
    except OSError as error:
        raise UnusableFile(f"{file}: cannot be read: {error.strerror}") from None
    except orjson.JSONDecodeError:
        raise UnusableFile(f"{file}: not valid JSON; it must be a JWK Set") from None
    except NoKeySet as error:
        raise UnusableFile(f"{file}: {error}") from None
    if keys.unusable:
        kid, reason = keys.unusable[0]
        raise UnusableFile(f"{file}: the key {kid!r} {reason}")
    if not keys:
        raise UnusableFile(
            f"{file}: has no key for the algorithms of {settings.issuer} "
            f"({', '.join(settings.algorithms)})"
        )
    return keys
