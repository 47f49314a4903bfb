"""Notices changes of the tools folder, of the configuration file and of files of keys."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Final

import structlog
from watchfiles import Change, awatch

DEBOUNCE_MS: Final = 400
STEP_MS: Final = 50
LOOK_MS: Final = 1000
"""How often single files are looked at, and whether the watched folder is still the one at
its path."""

RETRY_S: Final = 1.0

log = structlog.get_logger()
Matters = Callable[[Change, str], bool]
Found = frozenset[Path]


async def changes(
    folder: Path, files: Callable[[], Iterable[Path]], *, stop: asyncio.Event
) -> AsyncIterator[Found]:
    """Yield the sets of changed files that can matter: Python files in the folder, and
    the files that ``files`` names at the time.

    An empty set comes whenever a watch has been put in place, for the first time or again: what
    changed before that, after the files were read, would go unseen.

    The folder is absolute and has no links in it, as the changes that are told of. Ends when
    ``stop`` is set.
    """
    queue: asyncio.Queue[Found | None] = asyncio.Queue()

    def is_python(_: Change, path: str) -> bool:
        file = Path(path)
        # A folder that comes or goes may have brought or taken files unseen.
        return "__pycache__" not in file.parts and file.suffix in {".py", ""}

    watchers = [asyncio.create_task(_keep_watching(folder, is_python, queue, stop))]
    watchers.append(asyncio.create_task(_look_at(files, queue, stop)))
    ending = asyncio.create_task(_end(stop, queue))
    try:
        while (found := await queue.get()) is not None:
            yield found
    finally:
        stop.set()
        await asyncio.gather(ending, *watchers, return_exceptions=True)


async def _end(stop: asyncio.Event, queue: "asyncio.Queue[Found | None]") -> None:
    await stop.wait()
    queue.put_nowait(None)


async def _look_at(
    files: Callable[[], Iterable[Path]], queue: "asyncio.Queue[Found | None]", stop: asyncio.Event
) -> None:
    """Look at single files now and then.

    A watch would have to be on their folders, since editors replace files; and there logs and
    other files may change many times a second.
    """
    seen = {file: _version(file) for file in files()}
    while not stop.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), LOOK_MS / 1000)
        now = {file: _version(file) for file in files()}
        # One that was not looked at before was read a moment ago, perhaps before it changed.
        changed = [file for file, version in now.items() if seen.get(file, 0) != version]
        seen = now
        if changed:
            queue.put_nowait(frozenset(changed))


def _version(file: Path) -> tuple[int, int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


async def _keep_watching(
    root: Path,
    matters: Matters,
    queue: "asyncio.Queue[Found | None]",
    stop: asyncio.Event,
) -> None:
    """Watch a folder through all that happens to it: removed, made again, replaced."""
    while not stop.is_set():
        try:
            await _watch(root, matters, queue, stop)
        except Exception:  # what the system's watches can raise; without them nothing is noticed
            log.exception("watch_failed", folder=str(root))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), RETRY_S)


async def _watch(
    root: Path,
    matters: Matters,
    queue: "asyncio.Queue[Found | None]",
    stop: asyncio.Event,
) -> None:
    watched = _identity(root)
    if watched is None:
        return
    in_place = False
    async for found in awatch(
        root,
        watch_filter=matters,
        debounce=DEBOUNCE_MS,
        step=STEP_MS,
        stop_event=stop,
        recursive=True,
        ignore_permission_denied=True,
        rust_timeout=LOOK_MS,
        yield_on_timeout=True,
    ):
        if not in_place:
            in_place = True
            queue.put_nowait(frozenset())
        if found:
            queue.put_nowait(frozenset(Path(path) for _, path in found))
        if _identity(root) != watched:
            return


def _identity(folder: Path) -> tuple[int, int] | None:
    """Which folder is at a path; a watch stays with the folder, not with its path."""
    try:
        status = folder.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
