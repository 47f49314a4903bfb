"""This process as a member of its fleet: what a decision of administrators changes in it."""

import asyncio
import os
import re
import secrets
import socket
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol

import structlog

from app.auth.authenticator import Authenticator
from app.auth.revocation import Revocations
from app.fleet.control import Control
from app.fleet.fingerprints import DIGITS, configuration_fingerprint, key_fingerprints
from app.fleet.fleet import Description, Fleet
from app.methods.subscriptions import Hub
from app.protocol.sealed import KeyRing
from app.registry.live import Registry
from app.settings import Settings
from app.state.interface import Bus, Store
from app.version import server_version

MAX_HOST: Final = 48
log = structlog.get_logger()


class Drainable(Protocol):
    """What takes requests, and can be told to take no further ones."""

    @property
    def is_draining(self) -> bool:
        """Whether it wants no further requests, for whatever reason."""

    def begin_drain(self) -> None:
        """Say that no further requests are wanted; those that come are served."""

    def end_drain(self) -> None:
        """Take requests again."""


class Membership:
    """Acts on the control document; implements ``app.fleet.fleet.Site``.

    Args:
        replica: Id of this replica.
        keys: The newest is the key of what is compared of secrets.
        door: What can be drained; None: nothing can.
        settings: Gives those of now.
        authenticator: Likewise.
        reload: Loads settings and tools again.
        has_changed: Called when ``describe`` says something else.
    """

    def __init__(
        self,
        replica: str,
        registry: Registry,
        hub: Hub,
        revocations: Revocations,
        keys: KeyRing,
        *,
        door: Drainable | None,
        settings: Callable[[], Settings],
        authenticator: Callable[[], Authenticator],
        reload: Callable[[], Coroutine[Any, Any, None]],
        has_changed: Callable[[], None],
    ) -> None:
        self._replica = replica
        self._registry = registry
        self._hub = hub
        self._revocations = revocations
        self._keys = keys
        self._door = door
        self._settings = settings
        self._authenticator = authenticator
        self._reload = reload
        self._has_changed = has_changed
        self._is_serving = False
        self._is_drained = False
        self._reloads = 0
        self._wanted_reloads = 0
        self._reloading: asyncio.Task[None] | None = None
        self._configuration: tuple[Settings, Authenticator, str] | None = None

    def fleet(self, control: Store, bus: Bus) -> Fleet:
        """The fleet that it is a member of."""
        return Fleet(
            control,
            bus,
            self,
            replica=self._replica,
            pid=os.getpid(),
            keys=key_fingerprints(self._keys),
            version=server_version(),
        )

    # app.fleet.fleet.Site

    async def apply(self, control: Control) -> None:
        """Act on a document. What takes a right away comes first, and waits for nothing."""
        if self._revocations.replace(control.revoked):
            self._authenticator().forget_revoked()
        self._drain(self._replica in control.drained)
        if not self._is_serving:  # the tools that are going to be loaded are switched, and new
            self._registry.switches = control.switches
            self._reloads = self._wanted_reloads = control.reloads
            return
        if control.switches != self._registry.switches:
            await self._registry.switch(control.switches)
        if control.reloads > self._wanted_reloads:
            self._wanted_reloads = control.reloads
            if self._reloading is None or self._reloading.done():
                self._reloading = asyncio.create_task(self._load(), name="reload")

    def tell(self) -> None:
        self._hub.publish()

    def describe(self) -> Description:
        return Description(
            configuration=self._fingerprint(),
            catalog=self._registry.catalog.fingerprint[:DIGITS],
            reloads=self._reloads,
            draining=self._door is not None and self._door.is_draining,
        )

    # The life of the process.

    def serves(self) -> None:
        """The tools are loaded."""
        self._is_serving = True

    async def stop(self) -> None:
        """Wait for no reload any more."""
        if self._reloading is not None:
            self._reloading.cancel()
            await asyncio.gather(self._reloading, return_exceptions=True)

    async def _load(self) -> None:
        # Beside the following: a file that hangs must not keep other decisions waiting.
        while self._reloads < self._wanted_reloads:
            wanted = self._wanted_reloads
            try:
                await self._reload()
            except Exception:  # the last good snapshot goes on
                log.exception("reload_failed")
            self._reloads = wanted
            self._has_changed()

    def _drain(self, is_drained: bool) -> None:
        if is_drained == self._is_drained or self._door is None:
            return
        self._is_drained = is_drained
        if is_drained:
            self._door.begin_drain()
        else:
            self._door.end_drain()

    def _fingerprint(self) -> str:
        settings, authenticator = self._settings(), self._authenticator()
        known = self._configuration
        if known is None or known[0] is not settings or known[1] is not authenticator:
            keys = [
                (
                    *(id, hashed, sorted(caller.scopes), sorted(caller.roles), caller.clearance),
                    *(caller.tenant, sorted(caller.approvals), caller.expires_at),
                )
                for id, (hashed, caller) in authenticator.keys.by_id.items()
            ]
            fingerprint = configuration_fingerprint(settings, self._keys, keys)
            known = self._configuration = settings, authenticator, fingerprint
        return known[2]


def new_replica_id() -> str:
    """Names this machine for people, and is nevertheless no other server's on it."""
    host = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname())[:MAX_HOST].strip(".-")
    return f"{host or 'replica'}-{secrets.token_hex(3)}"
