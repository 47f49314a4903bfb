"""`python -m benchmarks.tracing`: what the spans of a call cost.

The method is that of the cost table: whole servers, CPU time of the process with its threads, so
that encoding and sending spans is in it, rounds in turns. The collector is another process, whose
time does not count.
"""

from __future__ import annotations

import contextlib
import gc
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from rich.console import Console

from benchmarks import processes, report, servers
from benchmarks.cost import interleaved
from benchmarks.plan import DEFAULT

OFF: Final = ""
WAYS: Final[Mapping[str, str]] = {
    "spans off": OFF,
    "on, none sampled": "sample_ratio = 0.0",
    "on, a tenth sampled": "sample_ratio = 0.1",
    "on, all sampled": "sample_ratio = 1.0",
}


@contextlib.contextmanager
def collector(core: int | None) -> Iterator[int]:
    """The port of a process that takes spans."""
    port = processes.free_port()
    with processes.on_core(core):
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.sink", str(port)], cwd=processes.ROOT
        )
    try:
        yield port
    finally:
        process.terminate()
        process.wait()


def main() -> None:
    """Measure and print."""
    gc.disable()
    pair = processes.cores()
    console = Console(width=108)
    with tempfile.TemporaryDirectory(prefix="tracing-") as name, contextlib.ExitStack() as stack:
        port = stack.enter_context(collector(pair[1] if pair else None))
        running = []
        for number, (label, ratio) in enumerate(WAYS.items()):
            folder = Path(name) / str(number)
            folder.mkdir()
            where = f'enabled = true\nendpoint = "http://127.0.0.1:{port}"\n{ratio}'
            settings = f"[tracing]\n{where}\n" if ratio else ""
            running.append(
                stack.enter_context(
                    servers.ours(folder, files=DEFAULT.tools, label=label, settings=settings)
                )
            )
        stack.enter_context(processes.on_core(pair[1] if pair else None))
        found = interleaved(DEFAULT, running, servers.CALL)
    console.print(report.for_terminal(report.tracing(found)))


if __name__ == "__main__":
    main()
