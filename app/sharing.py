"""The state that settings name: in memory, or in a Redis that servers share."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

from app.backing import State
from app.observability.metrics import STATE_ERRORS, STATE_SECONDS
from app.settings import StateSettings
from app.state.interface import Store
from app.state.measured import MeasuredBus, MeasuredStore
from app.state.redis_bus import RedisBus
from app.state.redis_cluster import ClusterLink
from app.state.redis_link import Link, ServerLink
from app.state.redis_store import RedisStore
from app.state.redis_target import Connect, Masters, Target, connect_to_server


class RedisState(State):
    """What outlives a request, in a Redis or Valkey that servers share."""

    is_shared = True

    def __init__(self, target: Target, *, prefix: str) -> None:
        super().__init__()
        name, timeout_s = target.name, target.timeout_s
        self._masters: Masters | None = None
        self._link: Link
        connect: Connect
        if target.kind == "cluster":
            self._link = cluster = ClusterLink(target)
            connect = cluster.connect
        else:
            if target.kind == "sentinel":
                self._masters = Masters(target)
                connect = self._masters.connect
            else:
                connect = partial(connect_to_server, target)
            probe = f"{prefix}probe"
            self._link = ServerLink(connect, name=name, timeout_s=timeout_s, probe=probe)
        self._bus = RedisBus(
            self._link, connect, name=name, prefix=f"{prefix}bus:", timeout_s=timeout_s
        )
        self.bus = MeasuredBus(self._bus, _observe)
        self.limits = self._store(f"{prefix}limits:")
        self.kept = self._store(f"{prefix}kept:")
        self.outcomes = self._store(f"{prefix}outcomes:")
        self.sessions = self._store(f"{prefix}sessions:")
        self.ended = self._store(f"{prefix}ended:")
        self.replays = self._store(f"{prefix}replays:")
        self.control = self._store(f"{prefix}control:")

    def _store(self, prefix: str) -> Store:
        return MeasuredStore(RedisStore(self._link, prefix), _observe)

    @property
    def problem(self) -> str | None:
        return self._link.problem or self._bus.problem

    async def start(self) -> None:
        await asyncio.gather(self._link.start(), self._bus.start())

    async def close(self) -> None:
        await self._bus.close()
        await self._link.close()
        if self._masters is not None:
            await self._masters.close()


def _observe(operation: str, seconds: float, reason: str | None) -> None:
    STATE_SECONDS.observe(seconds, operation)
    if reason is not None:
        STATE_ERRORS.inc(operation, reason)


def state_of(settings: StateSettings) -> State:
    """The state that settings name, which is not connected yet."""
    if not settings.is_shared:
        return State()
    state = RedisState(_target(settings), prefix=settings.prefix)
    state.is_required = settings.required
    return state


def check_state(settings: StateSettings) -> None:
    """Whether the files can be read that settings name.

    Raises:
        ValueError: One of them cannot.
    """
    if settings.is_shared:
        try:
            _target(settings).check()
        except (OSError, ValueError) as error:  # of TLS too; neither repeats what is in a file
            raise ValueError(f"a file of [state] cannot be used: {error}") from error


def _target(settings: StateSettings) -> Target:
    url = settings.parsed_url
    password: Callable[[], str | None]
    if settings.password_file is not None:
        password = partial(_read, settings.password_file)
    else:
        known = url.password.get_secret_value() if url.password is not None else None
        password = lambda: known  # noqa: E731
    sentinel_file = settings.sentinel_password_file
    return Target(
        kind=url.kind,
        hosts=url.hosts,
        path=url.path,
        service=url.service,
        db=url.db,
        username=url.username,
        password=password,
        sentinel_password=partial(_read, sentinel_file) if sentinel_file else lambda: None,
        tls=url.tls,
        tls_ca_file=settings.tls_ca_file,
        tls_certificate_file=settings.tls_certificate_file,
        tls_key_file=settings.tls_key_file,
        timeout_s=settings.timeout_s,
    )


def _read(file: Path) -> str:
    return file.read_text("utf-8").strip()
