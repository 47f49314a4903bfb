"""What the parts of a service tell when its metrics are read."""

import platform
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from app.execution.caching import ResultCache
from app.execution.endings import Endings
from app.execution.executor import Executor
from app.execution.processes.pool import Processes
from app.methods.subscriptions import Hub
from app.observability import metrics
from app.registry.live import Registry
from app.settings import Settings
from app.version import server_version


class Parts(NamedTuple):
    """What is looked at."""

    settings: Settings
    endings: Endings
    executor: Executor
    processes: Processes
    cache: ResultCache
    hub: Hub
    registry: Registry


def measure(parts: Parts) -> Callable[[], None]:
    """Have the metrics of the process say what is the case in these parts.

    Returns:
        What ends that.
    """
    settings = parts.settings
    metrics.configure(buckets=settings.metrics.buckets, max_tools=settings.metrics.max_tools)
    metrics.BUILD.replace({(server_version(), platform.python_version()): 1})
    metrics.CALLS_LIMIT.set(settings.limits.concurrent_calls)
    metrics.LISTEN_STREAMS_LIMIT.set(settings.limits.listen_streams)
    metrics.THREADS_LIMIT.set(settings.execution.threads, "busy")
    metrics.THREADS_LIMIT.set(settings.execution.max_abandoned_threads, "abandoned")
    return metrics.read_with(lambda: _read(parts))


def _read(parts: Parts) -> None:
    executor, processes = parts.executor, parts.processes.counts()
    threads = executor.threads
    metrics.CALLS_IN_FLIGHT.set(parts.endings.running)
    metrics.CALLS_ASKING.set(executor.asking)
    metrics.THREADS.set(threads.running, "busy")
    metrics.THREADS.set(threads.idle, "idle")
    metrics.THREADS.set(threads.abandoned, "abandoned")
    metrics.PROCESSES.set(processes.busy, "busy")
    metrics.PROCESSES.set(processes.idle, "idle")
    metrics.PROCESSES.set(processes.starting, "starting")
    metrics.QUEUE.set(threads.waiting, "thread")
    metrics.QUEUE.set(processes.waiting, "process")
    metrics.CACHE_BYTES.set(parts.cache.size)
    metrics.LISTEN_STREAMS.set(parts.hub.open_streams)
    registry = parts.registry
    metrics.TOOLS.set(len(registry.catalog.tools))
    metrics.CATALOG.replace({(registry.catalog.fingerprint[:16],): 1})
    problems = Counter(problem.severity for problem in registry.problems)
    for severity in ("error", "warning"):
        metrics.TOOL_PROBLEMS.set(problems[severity], severity)
