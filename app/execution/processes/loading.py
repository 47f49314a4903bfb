"""What a worker does before its first call: load, enter lifespans, compile."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import structlog

from app.execution.processes.wire import Load
from app.registry.assembly import served_name
from app.registry.lifespans import Lifespan
from app.registry.loader import LoadedFile, load_again
from app.registry.options import ToolDefinitionError
from app.registry.problems import Problem
from app.registry.tool import Tool, compile_tool

T = TypeVar("T")
log = structlog.get_logger()


class Loop:
    """An event loop in a thread of its own, made when something asynchronous comes.

    It goes on between calls, for what a ``lifespan()`` has started. Synchronous tools run in the
    main thread: a worker that has nothing else stays single-threaded, and may fork.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._loop.run_forever, name="event loop", daemon=True).start()
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()


class Loaded(NamedTuple):
    """What a worker has ready. ``tools`` are by their place in ``Load.tools``."""

    tools: Mapping[int, Tool]
    lifespans: list[Lifespan]
    problems: list[Problem]


def load_tools(load: Load, loop: Loop, announce: Callable[[str], None]) -> Loaded:
    """Load the files, enter their lifespans, compile the tools; one bad file spoils no other.

    Args:
        announce: Told which file comes next: if the process ends now, that one is to blame.
    """
    problems: list[Problem] = []
    files: dict[str, LoadedFile] = {}
    for sources, paths in load.builds:
        build = load_again(Path(load.folder), sources, paths, announce)
        files |= build.files
        problems += build.problems
    lifespans: list[Lifespan] = []
    problems += _enter_lifespans(load, files, lifespans, loop, announce)
    for problem in problems:
        files.pop(problem.path, None)
    tools = {}
    for number, wanted in enumerate(load.tools):
        file = files.get(wanted.path)
        if file is not None:
            try:
                tools[number] = _compile(file, wanted.name, load)
            except ToolDefinitionError as error:
                problems.append(Problem(file.path, None, "error", str(error), wanted.name))
    if any(tool.is_async for tool in tools.values()):
        loop.run(asyncio.sleep(0))  # its thread is there before memory is counted
    return Loaded(tools, lifespans, problems)


def _enter_lifespans(
    load: Load,
    files: Mapping[str, LoadedFile],
    entered: list[Lifespan],
    loop: Loop,
    announce: Callable[[str], None],
) -> Iterator[Problem]:
    for path, settings in (load.lifespans or {}).items():
        file = files.get(path)
        if file is None or not hasattr(file.module, "lifespan"):
            continue
        announce(path)
        try:
            entered.append(loop.run(_enter(file, settings)))
        except Exception as error:  # the module's own code
            log.warning("lifespan_failed", file=path, exc_info=error)
            yield Problem(path, None, "error", f"lifespan() failed: {error}")


async def _enter(file: LoadedFile, settings: Mapping[str, Any]) -> Lifespan:
    lifespan = Lifespan(file, settings)
    await lifespan.enter()
    return lifespan


def _compile(file: LoadedFile, name: str, load: Load) -> Tool:
    for spec, _ in file.specs:
        if served_name(spec.name, file.path, load.settings.tools.separator) == name:
            return compile_tool(spec, name=name, source=file, settings=load.settings)
    raise ToolDefinitionError("it is not declared when its file is loaded in a worker process")
