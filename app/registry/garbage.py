"""Keeps the cycle collector from stopping the server for long.

A full collection visits every container in the process: with some hundred tools loaded that is
50 ms and more in which no request is served, and it comes when modules are loaded.
"""

import gc
from typing import Final

THRESHOLDS: Final = (5_000, 5, 100)
"""Full collections become rare; what requests allocate is freed by reference counts alone."""

COLLECT_AFTER: Final = 20
"""Replaced files whose modules (all of them cycles) may wait for a collection."""


class Garbage:
    """Decides when replaced modules are collected."""

    def __init__(self) -> None:
        self._waiting = 0
        self._after: int | None = None

    def settle(self) -> None:
        """The tools are loaded for the first time: never visit what is there now again."""
        gc.collect()
        gc.freeze()
        gc.set_threshold(*THRESHOLDS)

    def replaced(self, files: int) -> None:
        """Some versions of files are no longer used.

        A few at a time cost little to collect. After a change of many the rare automatic
        collection has to do, or requests would wait for it.
        """
        if files > COLLECT_AFTER:
            self._after = _full_collections()
        if self._after is not None:
            if self._after == _full_collections():
                return
            self._after = None
        self._waiting += files
        if self._waiting >= COLLECT_AFTER:
            self._waiting = 0
            gc.collect()


def _full_collections() -> int:
    return int(gc.get_stats()[2]["collections"])
