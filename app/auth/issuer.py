"""One issuer: its keys, fetched before they are needed and kept while it is down.

Nobody waits for a fetch as long as there are keys that count. At most one fetch runs at a time;
whoever needs it waits for that one.
"""

import asyncio
import math
import time
from collections.abc import Callable
from typing import Final

import jwt
import structlog

from app.auth.discovery import Metadata, MetadataRefused, metadata_urls, read_metadata
from app.auth.fetching import Fetcher, FetchFailed
from app.auth.keys import KeySet, NoKeySet, parse_key_set
from app.auth.problems import IssuerUnavailable, Refused
from app.settings import IssuerSettings

RETRY_S: Final = 10.0
"""After a failure it is asked again no sooner; also what ``Retry-After`` tells clients."""
REMINDER_S: Final = 60.0
"""While it is down, the log says so this often."""
SHOWN_KEYS: Final = 5

log = structlog.get_logger()

_MIN_PAUSE_S: Final = 0.05
_MAX_PAUSE_S: Final = 30.0


class Issuer:
    """The keys and addresses of one issuer.

    Args:
        static: Keys of ``keys_file``; then none are fetched.
        clock: POSIX time.

    Attributes:
        generation: Grows when a key has gone: what was checked with the old ones is in doubt.
    """

    def __init__(
        self,
        settings: IssuerSettings,
        *,
        static: KeySet | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings
        self.fetcher = Fetcher(settings.timeout_s)
        self.generation = 0
        self._clock = clock
        self._static = static
        self._keys = static
        self._metadata = Metadata(None, None)
        self._fetched_at = self._attempted_at = self._reminded_at = -math.inf
        self._failed = False
        self._flight: asyncio.Task[None] | None = None
        self._timer: asyncio.Task[None] | None = None
        asks, browser = settings.introspection, settings.browser
        self._wants_keys = static is None and (settings.discovery or settings.jwks_url is not None)
        needs_address = (asks is not None and asks.url is None) or (
            browser is not None and not (browser.authorization_url and browser.token_url)
        )
        self._fetches = self._wants_keys or (settings.discovery and needs_address)

    # Life

    def start(self) -> None:
        """Begin to keep keys fresh; the first fetch begins at once, and nobody waits for it."""
        if self._timer is None and self._fetches:
            self.refresh_if_due()
            self._timer = asyncio.create_task(self._keep_fresh(), name="issuer keys")

    async def stop(self) -> None:
        """End what runs and close connections."""
        tasks = [task for task in (self._timer, self._flight) if task is not None]
        self._timer = self._flight = None
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self.fetcher.close()

    async def _keep_fresh(self) -> None:
        while True:
            pause = self._due_at() - self._clock()
            await asyncio.sleep(min(max(pause, _MIN_PAUSE_S), _MAX_PAUSE_S))
            self.refresh_if_due()

    # Questions

    async def has_keys(self) -> bool:
        """Whether its tokens can be checked here; else it must be asked about each.

        Raises:
            IssuerUnavailable: Its metadata cannot be had.
        """
        if self._static is not None or self.settings.jwks_url is not None:
            return True
        if not self._wants_keys:
            return False
        await self._first_fetch()
        return self._metadata.jwks_url is not None

    @property
    def counts_until(self) -> float:
        """POSIX time until which its keys count, if it is not heard of again."""
        if self._static is not None:
            return math.inf
        return self._fetched_at + self.settings.refresh_s + self.settings.grace_s

    async def key(self, kid: str | None, algorithm: str) -> jwt.PyJWK:
        """The key that a token names.

        Raises:
            Refused: There is no such key.
            IssuerUnavailable: Its keys cannot be had.
        """
        key = (await self._usable_keys()).find(kid, algorithm)
        if key is None and await self.look_again():
            key = (await self._usable_keys()).find(kid, algorithm)
        if key is not None:
            return key
        if self._wants_keys and self._failed:  # the key may be a new one
            raise IssuerUnavailable(self._retry_in())
        raise Refused("The token is signed with a key that its issuer does not publish.")

    async def look_again(self) -> bool:
        """Fetch the keys again for a token that none of them fits, if it is time to.

        Returns False, without waiting, within the cool-down: however many tokens with made-up
        keys come, the issuer is asked once.
        """
        if not self._wants_keys:
            return False
        if self._flight is None:
            if self._clock() - self._attempted_at < self.settings.cooldown_s:
                return False
            self._launch()
        await self._landing()
        return True

    async def introspection_url(self) -> str:
        """Where to ask about its tokens.

        Raises:
            IssuerUnavailable: Its metadata cannot be had.
            Refused: It has no such address.
        """
        asks = self.settings.introspection
        if asks is not None and asks.url is not None:
            return asks.url
        await self._first_fetch()
        if self._metadata.introspection_url is None:
            raise Refused("Its issuer cannot be asked about this token.")
        return self._metadata.introspection_url

    async def metadata(self) -> Metadata:
        """What it says about itself; nothing, where there was no need to ask.

        Raises:
            IssuerUnavailable: It cannot be had.
        """
        if self._fetches:
            await self._first_fetch()
        return self._metadata

    async def _usable_keys(self) -> KeySet:
        self.refresh_if_due()
        if self._keys is None or self._clock() >= self.counts_until:
            await self._first_fetch(again=True)
        if self._keys is None or self._clock() >= self.counts_until:
            raise IssuerUnavailable(self._retry_in())
        return self._keys

    async def _first_fetch(self, *, again: bool = False) -> None:
        """Wait until it has been heard of."""
        if math.isfinite(self._fetched_at) and not again:
            return
        if self._flight is None:
            if self._retry_in() > 0:
                raise IssuerUnavailable(self._retry_in())
            self._launch()
        await self._landing()
        if not math.isfinite(self._fetched_at):
            raise IssuerUnavailable(self._retry_in())

    # Fetching

    def refresh_if_due(self) -> None:
        """Begin a fetch, if it is time and none runs. Nobody waits for it."""
        if self._fetches and self._flight is None and self._clock() >= self._due_at():
            self._launch()

    def _due_at(self) -> float:
        if self._failed:
            return self._attempted_at + self._pause_s()
        return self._fetched_at + self.settings.refresh_s

    def _pause_s(self) -> float:
        return min(RETRY_S, self.settings.cooldown_s)

    def _retry_in(self) -> float:
        return max(0.0, self._attempted_at + self._pause_s() - self._clock())

    def _launch(self) -> None:
        self._attempted_at = self._clock()
        self._flight = asyncio.create_task(self._fetch(), name="issuer fetch")

    async def _landing(self) -> None:
        # Not awaited itself: a caller that leaves must not take the fetch along.
        if self._flight is not None:
            await asyncio.wait({self._flight})

    async def _fetch(self) -> None:
        began = self._attempted_at
        try:
            # Three addresses of metadata and one of keys share the time of two requests.
            async with asyncio.timeout(2 * self.settings.timeout_s):
                metadata = await self._discover()
                keys = await self._fetch_keys(metadata)
        except FetchFailed as error:
            self._note_failure(error.reason)
        except MetadataRefused as error:
            self._note_failure(str(error), refused=True)
        except TimeoutError:
            self._note_failure("it answers too slowly")
        except Exception:
            # A bug of ours, which must not end the refreshing.
            log.exception("issuer_fetch_failed", issuer=self.settings.issuer)
            self._note_failure("an error of this server")
        else:
            self._metadata = metadata
            self._note_success(keys, began)
        finally:
            self._flight = None

    async def _discover(self) -> Metadata:
        if not self.settings.discovery:
            return Metadata(self.settings.jwks_url, None)
        refused: Exception = FetchFailed("it has no metadata", reached=True)
        for url in metadata_urls(self.settings.issuer):
            try:
                found = read_metadata(await self.fetcher.get(url), self.settings.issuer)
            except FetchFailed as error:
                if not error.reached:  # the other addresses are on the same machine
                    raise
                if not isinstance(refused, MetadataRefused):
                    refused = error
            except MetadataRefused as error:
                refused = error
            else:
                return found._replace(jwks_url=self.settings.jwks_url or found.jwks_url)
        raise refused

    async def _fetch_keys(self, metadata: Metadata) -> KeySet | None:
        if not self._wants_keys:
            return self._static
        if metadata.jwks_url is None:
            if self.settings.introspection is not None:
                return KeySet((), ())
            raise FetchFailed("its metadata has no jwks_uri", reached=True)
        try:
            return parse_key_set(
                await self.fetcher.get(metadata.jwks_url), self.settings.algorithms
            )
        except NoKeySet:
            raise FetchFailed("what it has at its jwks_uri is no JWK Set", reached=True) from None

    # What the log says

    def _note_success(self, keys: KeySet | None, began: float) -> None:
        before, self._keys = self._keys, keys
        recovered, self._failed = self._failed, False
        self._fetched_at, self._reminded_at = began, -math.inf
        if keys is None:
            return
        if before is not None and before.marks - keys.marks:
            self.generation += 1
        if recovered or before is None or before.marks != keys.marks:
            log.info("issuer_keys_refreshed", issuer=self.settings.issuer, keys=len(keys))
        if keys.unusable and (before is None or before.unusable != keys.unusable):
            shown = [unusable._asdict() for unusable in keys.unusable[:SHOWN_KEYS]]
            log.warning(
                "issuer_key_unusable",
                issuer=self.settings.issuer,
                count=len(keys.unusable),
                keys=shown,
            )
        if not keys and self._metadata.jwks_url is not None:
            log.warning("issuer_has_no_usable_key", issuer=self.settings.issuer)

    def _note_failure(self, reason: str, *, refused: bool = False) -> None:
        self._failed = True
        now = self._clock()
        if now - self._reminded_at < REMINDER_S:
            return
        self._reminded_at = now
        if refused:
            log.error("issuer_metadata_refused", issuer=self.settings.issuer, reason=reason)
        left = self.counts_until - now if self._keys else 0.0
        log.warning(
            "issuer_unavailable",
            issuer=self.settings.issuer,
            reason=reason,
            keys_count_for_s=None if left == math.inf else round(max(0.0, left)),
            retry_in_s=self._pause_s(),
        )
