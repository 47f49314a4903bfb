"""All worker processes of a server: what the registry prepares, and what carries calls."""

import asyncio
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import structlog

from app.execution.endings import Endings
from app.execution.execution import Execution, Outcome
from app.execution.processes.crew import Counts, Crew, Waiting
from app.execution.processes.handle import StartError, Worker, encode_call
from app.execution.processes.nursery import Nursery
from app.execution.processes.wire import CallToRun, Load, ToolToLoad, principal_fields
from app.observability.propagation import context_headers
from app.principal import Principal
from app.protocol.errors import Unavailable
from app.protocol.inbound import Call
from app.protocol.schema import LOG_LEVELS
from app.registry.lifespans import settings_of
from app.registry.loader import LoadedFile
from app.registry.problems import Problem
from app.registry.tool import Tool
from app.settings import ExecutionSettings, Settings

STOP_S: Final = 5.0
"""How long workers may take to leave their lifespans when the server ends."""

Place = tuple[Crew, int]
"""A crew that has a tool loaded, and which of its tools that is."""

log = structlog.get_logger()


class Processes:
    """Keeps a crew of workers for the tools of the current snapshot.

    Nothing is started before a tool wants it.

    Args:
        lifespans: False where tools are only looked at.
    """

    def __init__(
        self,
        settings: ExecutionSettings,
        endings: Endings,
        *,
        log_level: str,
        lifespans: bool = True,
    ) -> None:
        self._settings = settings
        self._endings = endings
        self._log_level = log_level
        self._lifespans = lifespans
        self._numbers = itertools.count(1)
        self._workers: dict[int, Worker] = {}
        self._nursery = Nursery(self._was_born, self._has_ended)
        self._crews: list[Crew] = []
        self._next: Crew | None = None
        self._places: Mapping[Tool, Place] = {}

    def counts(self) -> Counts:
        """Of all workers together."""
        crews = [*self._crews, *([self._next] if self._next is not None else [])]
        return Counts(*map(sum, zip(Counts(), *(crew.counts for crew in crews), strict=True)))

    # app.registry.isolation.Isolation

    async def prepare(self, tools: Iterable[Tool], settings: Settings) -> Sequence[Problem]:
        tools = list(tools)
        wanted = [tool for tool in tools if tool.process is not None]
        is_there = _have_all(self._crews, wanted)
        if not is_there and self._next is not None and _have_all([self._next], wanted):
            return []  # prepared before, and not published yet
        self._discard_next()
        if is_there:
            return []
        problems: list[Problem] = []
        while wanted:
            crew = self._crew(wanted, tools, settings)
            try:
                found = await crew.start_one()
            except StartError as error:
                await crew.stop(0)
                # The file that it was busy with is to blame; if there is none, all are.
                blamed = {error.path} if error.path else {tool.source.path for tool in wanted}
                text = f"its worker process did not start: {error}"
                problems += [Problem(path, None, "error", text) for path in sorted(blamed)]
                wanted = [tool for tool in wanted if tool.source.path not in blamed]
                continue
            problems += found
            bad = {problem.path for problem in found}
            crew.numbers = {
                tool: number for tool, number in crew.numbers.items() if tool.source.path not in bad
            }
            self._next = crew
            await crew.start_rest()
            break
        return problems

    def publish(self, tools: Iterable[Tool], *, prepared: bool) -> bool:
        wanted = [tool for tool in tools if tool.process is not None]
        # A file that failed stays in its last version, with the crew that has that loaded. Where
        # the crew of before has everything, nothing has changed for it.
        crews = [*reversed(self._crews)]
        if self._next is not None and prepared:
            is_needed = any(tool not in crew.numbers for crew in crews[:1] for tool in wanted)
            if is_needed or not crews:
                crews.insert(0, self._next)
                self._crews.append(self._next)
                self._next = None
        self._places = {
            tool: place for tool in wanted if (place := _place(tool, crews)) is not None
        }
        used = {crew for crew, _ in self._places.values()}
        for crew in [crew for crew in self._crews if crew not in used]:
            self._crews.remove(crew)
            crew.retire()
        if prepared:
            self._discard_next()
        return all(
            tool in self._places and tool in self._places[tool][0].numbers for tool in wanted
        )

    # app.execution.carrier.Carrier

    def start(
        self, execution: Execution, keywords: dict[str, Any], call: Call, principal: Principal
    ) -> None:
        place = self._places.get(execution.tool)
        if place is None:  # it was turned on by new settings, and its workers get ready
            raise Unavailable("The tool's processes are being started.", retry_after_s=1)
        crew, number = place
        meta, span = call.meta, execution.run_span
        here = context_headers()  # the frame may be made in the turn of another call

        def frame() -> bytes:
            current = here if span is None else span.begin_elsewhere()
            return encode_call(
                CallToRun(
                    number,
                    keywords,
                    call.id,
                    meta.protocol_version,
                    meta.client_info,
                    meta.raw,
                    principal_fields(principal),
                    execution.remaining_s,
                    None if meta.log_level is None else LOG_LEVELS.index(meta.log_level),
                    meta.progress_token is not None,
                    execution.is_draft,
                    meta.trace,
                    current,
                )
            )

        execution.work = waiting = Waiting(crew, execution, frame)
        crew.submit(waiting)
        if span is not None and waiting.worker is None:
            span.waits = True

    def leave(self, execution: Execution) -> bool:
        waiting: Waiting = execution.work
        is_late = execution.outcome == Outcome.TIMEOUT
        waiting.crew.abandon(waiting, "deadline" if is_late else "cancelled")
        return False

    def look_after(self, execution: Execution) -> None:
        """Nothing is left of a call in a process."""

    async def stop(self) -> None:
        self._discard_next()
        await asyncio.gather(*(crew.stop(STOP_S) for crew in self._crews))
        self._crews.clear()
        await self._nursery.stop()

    # Inside.

    def _crew(self, wanted: Sequence[Tool], tools: Sequence[Tool], settings: Settings) -> Crew:
        builds: dict[int, tuple[Mapping[str, bytes], list[str]]] = {}
        files: dict[str, LoadedFile] = {tool.source.path: tool.source for tool in wanted}
        for path, file in sorted(files.items()):
            texts = {name: source.text for name, source in file.sources.items()}
            builds.setdefault(id(file.sources), (texts, []))[1].append(path)
        names = {tool.name for tool in wanted}
        overrides = {
            key: each
            for key, each in settings.overrides.items()
            if key in names or key.startswith("environment:")
        }
        load = Load(
            folder=str(settings.tools.directory),
            builds=tuple((texts, tuple(paths)) for texts, paths in builds.values()),
            tools=tuple(ToolToLoad(tool.source.path, tool.name) for tool in wanted),
            lifespans={path: settings_of(file, tools) for path, file in files.items()}
            if self._lifespans
            else None,
            settings=Settings(
                tools=settings.tools, execution=settings.execution, overrides=overrides
            ),
            encoder=self._endings.encoder,
            log_level=self._log_level,
        )
        return Crew(
            load,
            {tool: number for number, tool in enumerate(wanted)},
            size=self._settings.processes,
            hire=self._hire,
            endings=self._endings,
        )

    def _hire(self, crew: Crew) -> Worker:
        number = next(self._numbers)
        worker = self._workers[number] = Worker(
            number,
            self._nursery,
            crew,
            max_result=self._settings.max_result_bytes,
            max_output=self._settings.process_output_bytes,
        )
        return worker

    def _was_born(self, number: int, pid: int) -> None:
        if number in self._workers:
            self._workers[number].was_born(pid)

    def _has_ended(self, number: int, status: int) -> None:
        worker = self._workers.pop(number, None)
        if worker is not None:
            worker.has_ended(status)

    def _discard_next(self) -> None:
        """What was prepared is not published after all."""
        if self._next is not None:
            self._next.retire()
            self._next = None


def _have_all(crews: Iterable[Crew], tools: Sequence[Tool]) -> bool:
    """Whether one of the crews has every tool as it is."""
    return not tools or any(all(tool in crew.numbers for tool in tools) for crew in crews)


def _place(tool: Tool, crews: Sequence[Crew]) -> Place | None:
    """Where a tool is loaded: the tool itself, else the same code with settings from before."""
    for crew in crews:
        if tool in crew.numbers:
            return crew, crew.numbers[tool]
    for crew in crews:
        for other, number in crew.numbers.items():
            if other.source is tool.source and other.name == tool.name:
                return crew, number
    return None
