"""The registry of a running server: the current snapshot and how it is replaced."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import structlog

from app.observability.metrics import RELOADS
from app.policy.policy import Policy
from app.policy.rollouts import Switch
from app.protocol.messages import ServerMessages
from app.protocol.sealed import KeyRing
from app.registry.aside import in_thread
from app.registry.assembly import NO_SWITCHES, Assembly, assemble, empty_catalog
from app.registry.garbage import Garbage
from app.registry.isolation import Isolation
from app.registry.lifespans import TIMEOUT_S, Lifespan, settings_of
from app.registry.loader import Build, LoadedFile, forget_modules, load_folder
from app.registry.problems import Problem
from app.registry.tool import Tool
from app.settings import Settings

STOP_TIMEOUT_S: Final = 5.0
"""How long the modules may take to close when the process ends."""

log = structlog.get_logger()


class Registry:
    """Publishes snapshots; a change is built beside the current one and swapped in at once.

    Args:
        settings: Its ``tools``, ``execution`` and ``overrides`` sections are used.
        on_change: Called in the event loop after a swap; somebody may find another list. Not
            after ``switch``: whoever calls that knows when listeners may be told.
        isolation: Prepares worker processes for the tools that want them.
        enforce: False serves everybody everything, whatever the rules and the tools demand.
        log_problems: False where somebody looks at ``problems``.
        counts: False lets everybody call as often as they like.

    Attributes:
        tools: All that could be served, by name; the catalog has those that are.
        switches: What administrators say; ``start`` heeds them too.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        messages: ServerMessages,
        keys: KeyRing,
        on_change: Callable[[], None] = lambda: None,
        isolation: Isolation | None = None,
        enforce: bool = True,
        log_problems: bool = True,
        counts: bool = True,
    ) -> None:
        self._settings = settings
        self._messages = messages
        self._keys = keys
        self._on_change = on_change
        self._isolation = isolation
        self._enforce = enforce
        self._log_problems = log_problems
        self._counts = counts
        self._files: Mapping[str, LoadedFile] = {}
        self._lifespans: dict[LoadedFile, Lifespan] = {}
        self._retiring: dict[asyncio.Task[None], LoadedFile] = {}
        self._reloading = asyncio.Lock()
        self._publishing = asyncio.Lock()
        self._broken: Sequence[Problem] = ()
        self._garbage = Garbage()
        self.catalog = empty_catalog(messages, keys)
        self.tools: Mapping[str, Tool] = {}
        self.switches: Mapping[str, Switch] = NO_SWITCHES
        self.problems: Sequence[Problem] = ()

    def list_ttl_ms(self) -> int:
        """``[tools] list_ttl_ms`` as it is now."""
        return self._settings.tools.list_ttl_ms

    async def start(self) -> None:
        """Load the folder for the first time.

        Raises:
            FileNotFoundError: There is no such folder.
        """
        await self._load(announce=False)

    def settle(self) -> None:
        """The process is about to serve: keep the cycle collector out of its way."""
        self._garbage.settle()

    async def reload(self) -> None:
        """Load what changed and publish it."""
        await self._load(announce=True)

    async def apply(self, settings: Settings, on_swap: Callable[[], None]) -> bool:
        """Publish new settings over the files as they are loaded now.

        It waits for no file: whoever takes a right away must not wait for an import that hangs.
        Nor for worker processes, which go on with the settings that they have.

        Args:
            on_swap: Called in the step that publishes, so that nothing can be served by the
                settings of one and not of the other.

        Returns:
            Whether worker processes need a ``reload`` to have the settings too.
        """
        async with self._publishing:
            build = Build(self._files, self._broken)
            assembly = await in_thread(self._assemble, build, settings, self.switches)
            self._settings = settings
            is_as_prepared = self._publish(assembly, what="settings", prepared=False)
            on_swap()
        self._on_change()
        return not is_as_prepared

    async def switch(self, switches: Mapping[str, Switch]) -> None:
        """Publish what administrators say now, over files and settings as they are.

        It waits for no file and no worker process: a tool that is switched off stays ready.
        """
        async with self._publishing:
            build = Build(self._files, self._broken)
            assembly = await in_thread(self._assemble, build, self._settings, switches)
            self.switches = switches
            self._publish(assembly, what="switches", prepared=False)

    async def stop(self) -> None:
        """Close what the modules opened, after their last calls ended or were given up."""
        for task in self._retiring:
            task.cancel()
        current = [lifespan.exit(STOP_TIMEOUT_S) for lifespan in self._lifespans.values()]
        self._lifespans.clear()
        await asyncio.gather(*self._retiring, *current, return_exceptions=True)

    async def _load(self, *, announce: bool) -> None:
        async with self._reloading:
            build = await in_thread(load_folder, Path(self._settings.tools.directory), self._files)
            is_published = False
            while not is_published:
                settings, switches = self._settings, self.switches
                assembly = await in_thread(self._assemble, build, settings, switches)
                failed = await self._enter_lifespans(assembly)
                if self._isolation is not None:
                    tools = assembly.tools.values()
                    failed += await self._isolation.prepare(tools, settings)
                if failed:
                    build = _without(build, failed, self._files)
                async with self._publishing:
                    if self._settings is not settings or self.switches is not switches:
                        continue  # applied meanwhile; workers must have them too
                    # Once more if something failed; what was compiled is kept.
                    if failed:
                        assembly = await in_thread(self._assemble, build, settings, switches)
                    self._broken = build.problems
                    self._publish(assembly, what="tools" if announce else None, prepared=True)
                    is_published = True
        if announce:
            self._on_change()

    def _publish(self, assembly: Assembly, *, what: str | None, prepared: bool) -> bool:
        """Swap. Returns whether worker processes have all tools exactly as they are now.

        Args:
            what: Has changed, for the metrics; None: this is the first snapshot.
            prepared: Whether workers were prepared for this.
        """
        previous = self._files
        visible = assembly.catalog.fingerprint != self.catalog.fingerprint
        self._files = assembly.files
        self.tools = assembly.tools
        self.catalog = assembly.catalog  # the swap: one assignment, and one step with the next
        if self._isolation is None:
            is_as_prepared = True
        else:
            is_as_prepared = self._isolation.publish(self.tools.values(), prepared=prepared)
        self._report(assembly.problems)
        self._note_kept_settings(assembly)
        self._retire([*previous.values(), *(self._lifespans if prepared else ())])
        if what is None:
            return is_as_prepared
        RELOADS.inc(what, "changed" if visible else "unchanged")
        if visible:
            log.info(
                "tools_changed",
                tools=len(self.catalog.tools),
                fingerprint=self.catalog.fingerprint[:16],
            )
        elif assembly.files != previous:
            log.info("tools_reloaded", tools=len(self.catalog.tools))
        return is_as_prepared

    def _assemble(
        self, build: Build, settings: Settings, switches: Mapping[str, Switch]
    ) -> Assembly:
        return assemble(
            build,
            self._files,
            self.tools,
            settings=settings,
            policy=Policy(settings.auth, settings.policies) if self._enforce else None,
            messages=self._messages,
            keys=self._keys,
            counts=self._counts,
            switches=switches,
        )

    async def _enter_lifespans(self, assembly: Assembly) -> list[Problem]:
        """Enter those of new files, at the same time. Returns what went wrong."""
        entering = {
            file: Lifespan(file, settings_of(file, assembly.tools.values()))
            for file in assembly.files.values()
            if file not in self._lifespans
            and hasattr(file.module, "lifespan")
            and (file.hooks or any(spec.isolation is None for spec, _ in file.specs))
        }
        outcomes = await asyncio.gather(
            *(lifespan.enter() for lifespan in entering.values()), return_exceptions=True
        )
        problems = []
        for (file, lifespan), error in zip(entering.items(), outcomes, strict=True):
            if error is None:
                self._lifespans[file] = lifespan
            else:
                log.warning("lifespan_failed", file=file.path, exc_info=error)
                message = f"lifespan() failed: {error}"
                problems.append(Problem(file.path, None, "error", message))
        return problems

    def _note_kept_settings(self, assembly: Assembly) -> None:
        for file, lifespan in self._lifespans.items():
            settings = settings_of(file, assembly.tools.values())
            if file in assembly.files.values() and lifespan.settings != settings:
                lifespan.settings = settings
                log.warning("lifespan_keeps_settings", file=file.path)

    def _report(self, problems: Sequence[Problem]) -> None:
        for problem in problems:
            if self._log_problems and problem not in self.problems:
                write = log.error if problem.severity == "error" else log.warning
                write(
                    "tool_problem",
                    file=problem.path,
                    line=problem.line,
                    tool=problem.tool,
                    problem=problem.message,
                )
        self.problems = tuple(problems)

    def _retire(self, others: Iterable[LoadedFile]) -> None:
        """Let go of versions that the new snapshot does not use, each after its last call.

        Args:
            others: Those of the snapshot before, and any that got ready in vain.
        """
        replaced = set(others) - set(self._files.values())
        for file in replaced:
            lifespan = self._lifespans.pop(file, None)
            if file.calls or lifespan is not None:
                file.idle = asyncio.Event()
                if not file.calls:
                    file.idle.set()
                task = asyncio.create_task(_close_when_idle(file.idle, lifespan))
                self._retiring[task] = file
                task.add_done_callback(self._retired)
        self._forget_modules()
        self._garbage.replaced(len(replaced))

    def _retired(self, task: asyncio.Task[None]) -> None:
        del self._retiring[task]
        if not self._retiring:
            self._forget_modules()

    def _forget_modules(self) -> None:
        forget_modules([*self._files.values(), *self._retiring.values()])


async def _close_when_idle(idle: asyncio.Event, lifespan: Lifespan | None) -> None:
    timeout_s = STOP_TIMEOUT_S  # the process ends before the last call did
    try:
        await idle.wait()
        timeout_s = TIMEOUT_S
    finally:
        if lifespan is not None:
            await lifespan.exit(timeout_s)


def _without(build: Build, failed: Sequence[Problem], previous: Mapping[str, LoadedFile]) -> Build:
    """The build with failed files in their previous version, or without them."""
    files: dict[str, Any] = dict(build.files)
    for problem in failed:
        if problem.path in previous:
            files[problem.path] = previous[problem.path]
        else:
            files.pop(problem.path, None)
    return Build(files, [*build.problems, *failed])
