"""Notices changes of the tools folder and the configuration file."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from watchfiles import Change, awatch

DEBOUNCE_MS: Final = 400
STEP_MS: Final = 50
IN_PLACE_MS: Final = 1000


async def changes(
    folder: Path, config: Path | None, *, stop: asyncio.Event
) -> AsyncIterator[frozenset[Path]]:
    """Yield the sets of changed files that can matter: Python files and the configuration.

    The first set is empty and comes when the watch is in place: what changed before that, after
    the files were read, would go unseen.

    Both paths are absolute and have no links in them, as the changes that are told of.

    Ends when ``stop`` is set.
    """
    queue: asyncio.Queue[frozenset[Path]] = asyncio.Queue()

    def is_python(_: Change, path: str) -> bool:
        file = Path(path)
        # A folder that comes or goes may have brought or taken files unseen.
        return "__pycache__" not in file.parts and file.suffix in {".py", ""}

    watchers = [asyncio.create_task(_watch(folder, is_python, queue, stop, recursive=True))]
    if config is not None:

        def is_config(_: Change, path: str) -> bool:
            return Path(path) == config

        # The folder, not the file: editors replace files, and a watch would stay on the old one.
        watchers.append(
            asyncio.create_task(_watch(config.parent, is_config, queue, stop, recursive=False))
        )
    stopped = asyncio.create_task(stop.wait())
    try:
        while not stop.is_set():
            found = asyncio.create_task(queue.get())
            await asyncio.wait({found, stopped, *watchers}, return_when=asyncio.FIRST_COMPLETED)
            for watcher in watchers:
                if watcher.done() and not stop.is_set():
                    watcher.result()  # raises what ended it
            if not found.done():
                found.cancel()
                continue
            yield found.result()
    finally:
        stop.set()
        await asyncio.gather(stopped, *watchers, return_exceptions=True)


async def _watch(
    root: Path,
    matters: object,
    queue: "asyncio.Queue[frozenset[Path]]",
    stop: asyncio.Event,
    *,
    recursive: bool,
) -> None:
    in_place = False
    async for found in awatch(
        root,
        watch_filter=matters,  # type: ignore[arg-type]  # a function of this shape
        debounce=DEBOUNCE_MS,
        step=STEP_MS,
        stop_event=stop,
        recursive=recursive,
        ignore_permission_denied=True,
        # The first time-out says that the watch is in place; later ones say nothing.
        rust_timeout=IN_PLACE_MS,
        yield_on_timeout=True,
    ):
        if not found and in_place:
            continue
        in_place = True
        queue.put_nowait(frozenset(Path(path) for _, path in found))
