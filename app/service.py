"""Composition root: the only place that wires the parts together, behind all doors."""

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import structlog

from app.audit.audit import Audit
from app.auth.administrators import administrators
from app.auth.authenticator import Authenticator
from app.auth.login import Login
from app.auth.metadata import metadata_paths, resource_metadata
from app.auth.revocation import Revocations
from app.backing import State, key_ring, traced
from app.execution.asking import Desk
from app.execution.caching import ResultCache
from app.execution.course import Courses
from app.execution.endings import Endings
from app.execution.executor import Executor
from app.execution.idempotency import Claims
from app.execution.manner import manner_of
from app.execution.pages import no_pages_url, pages_url
from app.execution.processes.pool import Processes
from app.execution.results import ResultEncoder
from app.execution.watchdog import Watchdog
from app.fleet.fleet import Fleet
from app.http.endpoint import Endpoint
from app.http.landing import Landing
from app.http.legacy import LegacyEndpoint
from app.http.legacy_calls import LegacyCalls
from app.listeners import Listeners
from app.measuring import Measuring
from app.membership import Drainable, Membership, new_replica_id
from app.methods.discover import Discover, server_info, server_messages
from app.methods.observing import CALL, Observer, Observers
from app.methods.router import Router
from app.methods.subscriptions import Hub, Listen
from app.methods.tools import CallTool, ListTools
from app.observability.metrics import RELOADS
from app.observability.tracing import FLUSH_S, Tracing, open_tracing
from app.policy.limits import Limiter
from app.principal import Principal
from app.protocol.sealed import KeyRing
from app.recording.wiring import recording_of
from app.registry.catalog import Catalog
from app.registry.live import Registry
from app.registry.tool import Tool, call_began, call_ended
from app.registry.watcher import changes
from app.reloading import as_far_as_possible, files_of, is_usable, read_again
from app.sessions.dialogue import Dialogues
from app.sessions.methods import LegacyMethods
from app.sessions.replays import Replays
from app.sessions.tokens import Sessions
from app.settings import Settings
from app.version import server_version

WATCH_STOP_S: Final = 2.0
COURSES_STOP_S: Final = 2.0
RECORDING_STOP_S: Final = 1.0
log = structlog.get_logger()


def tracing_of(settings: Settings) -> Tracing | None:
    """What makes spans for a server with these settings; None: nothing does.

    Raises:
        TelemetryMissing: Tracing is turned on, and the extra that it needs is not installed.
    """
    return open_tracing(settings.tracing, name=settings.server.name, version=server_version())


class Service:
    """Everything behind the doors of one process: registry, executor, router, listeners.

    Args:
        config: The configuration file to watch, if any.
        flags: Command line values, which stay in force when the file changes.
        enforce: False for somebody at the machine's own keyboard: no rule applies.
        pages: Whether users reach pages of this process.
        log_problems: Whether problems with tools go to the log.
        state: Shared with the other servers of a fleet; None: of this process alone.
        tracing: Makes spans; None: there are none. Closed with the service.
        observers: Told how each call ended.
        audit: The record of calls; default: as the settings say.
        replays_at: Gives the POSIX time at which rules decide about calls that are run again.
            Then nothing is counted or recorded, and answers to questions need no state.
        replica: Id of this server, which its workers share; None: a new one.
        door: What administrators can drain, if anything.

    Attributes:
        observers: For the doors; None: nobody observes.
        call_tool: Without observers, for calls that are run again.
        fleet: This process among the others, and what administrators decided.
        administrators: The keys that they have.
        is_lasting: Whether what they decide survives this process.
        audit: The record of calls; None: there is none.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        config: Path | None = None,
        flags: dict[str, dict[str, Any]] | None = None,
        enforce: bool = True,
        pages: bool = True,
        log_problems: bool = True,
        state: State | None = None,
        tracing: Tracing | None = None,
        replica: str | None = None,
        door: Drainable | None = None,
        observers: Sequence[Observer] = (),
        audit: Audit | None = None,
        replays_at: Callable[[], float] | None = None,
    ) -> None:
        self.settings = settings
        self._tracing = tracing
        self.spans = spans = None if tracing is None else tracing.spans
        self._config = config
        self._flags = flags
        messages = server_messages(settings)
        self._named: frozenset[Path] = frozenset()
        self._must_load = asyncio.Event()
        self.state = state or State()
        state = traced(self.state, spans)
        limiter = Limiter(state.limits)
        self.hub = Hub(
            limit=settings.limits.listen_streams,
            limit_anonymous=self._places_of_anonymous_callers,
            keep_alive_s=settings.execution.keep_alive_s,
            look=self._look,
            renew=self._renew,
            next_edge=lambda: self.registry.catalog.next_edge,
            clock=time.time,
        )
        keys = key_ring(settings)
        execution = settings.execution
        encoder = ResultEncoder(
            messages, max_bytes=execution.max_result_bytes, cleans=execution.clean_text
        )
        endings = Endings(encoder, end=call_ended)
        processes = Processes(settings.execution, endings, log_level=settings.logging.level)
        self.registry = Registry(
            settings,
            messages=messages,
            keys=keys,
            on_change=self._tools_changed,
            isolation=processes,
            enforce=enforce,
            log_problems=log_problems,
            counts=replays_at is None,
        )
        desk = Desk(
            keys,
            state.kept,
            ask_ttl_s=settings.execution.ask_ttl_s,
            pages_url=(lambda principal: pages_url(self.settings, principal))
            if pages
            else no_pages_url,
            needs_state=replays_at is None,
        )
        self._landing = Landing(
            settings,
            desk.pages,
            keys,
            login=self._login,
        )
        self.executor = Executor(
            settings,
            endings,
            desk=desk,
            begin=call_began,
            end=call_ended,
            processes=processes,
            manner=manner_of(settings),
            spans=spans,
        )
        self._courses = Courses(
            self.executor,
            endings,
            cache=ResultCache(execution.cache_bytes),
            claims=Claims(
                state.outcomes,
                ttl_s=execution.idempotency_ttl_s,
                open_ttl_s=execution.ask_ttl_s,
            ),
            limit=settings.limits.concurrent_calls,
        )
        # Without reload hours of rules and administrators still change what a caller finds.
        tools_change = (
            settings.tools.reload
            or any(rule.conditions.has_hours for rule in settings.policies)
            or settings.admin.port is not None
            or state.is_shared
        )
        # What somebody does at the machine's own keyboard is no call that was served.
        is_served = enforce and replays_at is None
        if audit is None and is_served and settings.audit.directory is not None:
            replica = replica or new_replica_id()
            audit = Audit(settings, replica=replica)
        self.audit = audit
        self._recording = recording_of(settings, self._catalog) if is_served else ()
        observing: list[Observer] = [*observers, *self._recording]
        if self.audit is not None:
            observing.append(self.audit)
        self.observers = Observers(observing, self._catalog) if observing else None
        self.call_tool = CallTool(
            self._catalog,
            self.executor,
            encoder,
            self._courses,
            limiter=limiter,
            desk=desk,
            clock=replays_at or time.time,
            challenge=lambda: self.endpoint.authenticator.challenge,
            intents=self.audit,
            spans=spans,
        )
        self.router = Router(
            {
                "server/discover": Discover(
                    settings,
                    messages,
                    list_ttl_ms=self.registry.list_ttl_ms,
                    is_open=lambda: self.settings.auth.is_open,
                    tools_change=tools_change,
                ),
                "tools/list": ListTools(self._catalog, limiter, clock=time.time),
                CALL: self.observers.around(self.call_tool) if self.observers else self.call_tool,
                "subscriptions/listen": Listen(tools_change=tools_change),
            }
        )
        self._bus = state.bus
        self._replays = Replays(state.replays, self._bus, ttl_s=settings.legacy.replay_ttl_s)
        self._revocations = Revocations()
        self.legacy = self._older_revisions(keys, state, desk, tools_change=tools_change)
        self.endpoint = Endpoint(
            settings,
            self.router,
            self.hub,
            messages,
            Authenticator(settings, revocations=self._revocations),
            legacy=LegacyEndpoint(
                self.legacy,
                LegacyCalls(
                    self.legacy,
                    self._replays,
                    settings.execution,
                    poll_after_s=settings.legacy.poll_after_s,
                ),
                self._replays,
                self.hub,
                observers=self.observers,
                spans=spans,
            )
            if settings.legacy.enabled
            else None,
            observers=self.observers,
            spans=spans,
        )
        self._measuring = Measuring(settings, self._courses, processes, self.hub, self.registry)
        self.administrators = administrators(settings.admin)
        self.is_lasting = state.is_shared
        self._membership, self.fleet = self._among_others(replica, keys, state, door)
        self._listeners = Listeners(
            self.hub,
            authenticator=lambda: self.endpoint.authenticator,
            is_early=lambda: self.fleet.is_waiting,
        )
        self._changing = asyncio.Lock()
        self._watchdog: Watchdog | None = None
        self._stop_watching = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Load the tools and begin to watch them.

        Raises:
            FileNotFoundError: There is no tools folder.
            AuditUnusable: Nothing can be put on record.
        """
        if self.audit is not None:
            self.audit.start()
        self._measuring.start()
        await asyncio.gather(self.state.start(), self.endpoint.authenticator.start())
        for recording in self._recording:
            recording.start()
        await self.fleet.begin()
        self._ending = asyncio.create_task(self._listeners.look_after(), name="listeners")
        await self.registry.start()
        self._membership.serves()
        self.fleet.join()
        self._watchdog = Watchdog(self.settings.tools.directory)
        if self.settings.tools.reload:
            self._watching = asyncio.create_task(self._watch(), name="watch tools")

    async def stop(self) -> None:
        """End what runs, in the order in which it depends on each other."""
        self._measuring.stop()
        self.hub.shut_down()
        await self.fleet.leave()
        await self._membership.stop()
        if self._watchdog is not None:
            self._watchdog.stop()
        self._stop_watching.set()
        if self._watching is not None:
            # A reload under way may wait for something that never comes.
            await asyncio.wait({self._watching}, timeout=WATCH_STOP_S)
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        if self._ending is not None:
            self._ending.cancel()
            await asyncio.gather(self._ending, return_exceptions=True)
        await self.endpoint.authenticator.stop()
        await self.executor.stop()
        await self._replays.close()
        self.legacy.close()
        await self._courses.stop(COURSES_STOP_S)
        for recording in self._recording:
            await recording.stop(RECORDING_STOP_S)
        await self.registry.stop()
        await self.state.close()
        if self.audit is not None:
            await self.audit.stop()
        if self._tracing is not None:
            await self._tracing.close(min(FLUSH_S, self.settings.server.shutdown_grace_s))

    def _among_others(
        self, replica: str | None, keys: KeyRing, state: State, door: Drainable | None
    ) -> tuple[Membership, Fleet]:
        id = replica or new_replica_id()
        membership = Membership(
            id,
            self.registry,
            self.hub,
            self._revocations,
            keys,
            door=door,
            settings=lambda: self.settings,
            authenticator=lambda: self.endpoint.authenticator,
            reload=self._reload,
            has_changed=self._is_another,
        )
        return membership, membership.fleet(state.control, state.bus)

    def _older_revisions(
        self, keys: KeyRing, state: State, desk: Desk, *, tools_change: bool
    ) -> LegacyMethods:
        settings = self.settings
        return LegacyMethods(
            self.router,
            Sessions(keys, state.sessions, ended=state.ended, ttl_s=settings.legacy.session_ttl_s),
            Dialogues(self._bus, self.executor, desk, timeout_s=settings.legacy.ask_timeout_s),
            self._bus,
            find_tool=self._find_tool,
            server_info=server_info(settings),
            instructions=settings.server.instructions,
            tools_change=tools_change,
        )

    def _find_tool(self, principal: Principal, name: str) -> Tool | None:
        offer = self.registry.catalog.view(principal, time.time()).offers.get(name)
        return None if offer is None else offer.tool

    def metadata(self, path: str) -> bytes | None:
        """What a path below ``/.well-known`` says (RFC 9728); None: nothing."""
        return resource_metadata(self.settings) if path in metadata_paths(self.settings) else None

    def landing(self) -> Landing | None:
        """The pages for users; None where nobody can log in to them."""
        has_login = any(issuer.browser for issuer in self.settings.auth.issuers)
        return self._landing if has_login else None

    def _login(self, issuer: str) -> Login | None:
        return self.endpoint.authenticator.login(issuer)

    def _catalog(self) -> Catalog:
        return self.registry.catalog

    def _places_of_anonymous_callers(self) -> int:
        """Where some callers have a credential, those without must not take every place."""
        places = self.settings.limits.listen_streams
        return places // 2 if self.settings.auth.is_configured else places

    def _look(self, principal: Principal) -> str:
        return self.registry.catalog.view(principal, time.time()).fingerprint

    def _renew(self, principal: Principal) -> Principal | None:
        return self.endpoint.authenticator.renewed(principal)

    def _is_another(self) -> None:
        self.fleet.has_changed()

    def _tools_changed(self) -> None:
        self._is_another()
        # While a decision is not applied everywhere, telling would be too early. It comes soon.
        if not self.fleet.is_waiting:
            self.hub.publish()

    async def _watch(self) -> None:
        folder = Path(self.settings.tools.directory).resolve()  # noqa: ASYNC240  # once
        # Beside the watching: a file that hangs must not keep a change of the rules waiting.
        loading = asyncio.create_task(self._load_when_asked(), name="load tools")
        try:
            async for changed in changes(folder, self._watched, stop=self._stop_watching):
                if self._stop_watching.is_set():
                    return
                watched = self._watched()
                if not changed or not changed.isdisjoint(watched):
                    await self._change_settings(announce=bool(changed))
                if not changed or changed - watched:
                    self._must_load.set()
        finally:
            loading.cancel()
            await asyncio.gather(loading, return_exceptions=True)

    async def _load_when_asked(self) -> None:
        while True:
            await self._must_load.wait()
            self._must_load.clear()
            try:
                await self.registry.reload()
            except (FileNotFoundError, TimeoutError) as error:
                RELOADS.inc("tools", "failed")
                log.error("reload_failed", problem=str(error))  # noqa: TRY400  # it may come back
            except Exception:  # the last good snapshot goes on
                RELOADS.inc("tools", "failed")
                log.exception("reload_failed")

    def _watched(self) -> frozenset[Path]:
        """The configuration, and the files of keys that it names or would name."""
        config = {self._config.absolute()} if self._config is not None else set()
        return frozenset(config) | files_of(self.settings) | self._named

    async def _reload(self) -> None:
        """Everything again, whether or not files are watched."""
        if self._config is not None or self._flags is not None:
            await self._change_settings(announce=True)
        await self.registry.reload()

    async def _change_settings(self, *, announce: bool) -> None:
        async with self._changing:
            await self._change_settings_now(announce=announce)

    async def _change_settings_now(self, *, announce: bool) -> None:
        new = read_again(self._config, self._flags)
        if new is not None:
            self._named = files_of(new)
        if new is None or not is_usable(new):
            RELOADS.inc("settings", "failed")
            return
        settings = as_far_as_possible(self.settings, new)
        before = self.endpoint.authenticator
        try:
            admins = administrators(settings.admin, self.administrators)
            after = Authenticator(settings, previous=before, revocations=self._revocations)
        except (OSError, ValueError) as error:  # a file of keys has changed since it was looked at
            RELOADS.inc("settings", "failed")
            log.error("configuration_problem", problem=str(error))  # noqa: TRY400  # no bug of ours
            return
        await after.start()

        def swap() -> None:
            self.settings, self.administrators = settings, admins
            self.endpoint.authenticator = after
            after.forget_revoked()  # of what came between
            if announce:
                log.info(
                    "configuration_applied",
                    issuers=len(settings.auth.issuers),
                    api_keys=len(after.keys.by_id),
                    revoked=len(settings.auth.revoked),
                    rules=len(settings.policies),
                )

        try:
            if await self.registry.apply(settings, swap):
                self._must_load.set()
        except Exception:  # the last good snapshot goes on, with its keys
            RELOADS.inc("settings", "failed")
            log.exception("reload_failed")
        if self.endpoint.authenticator is after:
            await before.stop()
        else:
            await before.start()
            await after.stop()
