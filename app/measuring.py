"""What the parts of a service tell when its metrics are read."""

import platform
from collections import Counter
from collections.abc import Callable

from app.execution.course import Courses
from app.execution.processes.pool import Processes
from app.methods.subscriptions import Hub
from app.observability import metrics
from app.registry.live import Registry
from app.settings import Settings
from app.version import server_version


class Measuring:
    """Has the metrics of the process say what is the case in these parts."""

    def __init__(
        self,
        settings: Settings,
        courses: Courses,
        processes: Processes,
        hub: Hub,
        registry: Registry,
    ) -> None:
        self._settings = settings
        self._courses = courses
        self._processes = processes
        self._hub = hub
        self._registry = registry
        self._end: Callable[[], None] | None = None

    def start(self) -> None:
        """Before anything is counted."""
        settings = self._settings
        metrics.configure(buckets=settings.metrics.buckets, max_tools=settings.metrics.max_tools)
        metrics.BUILD.replace({(server_version(), platform.python_version()): 1})
        metrics.CALLS_LIMIT.set(settings.limits.concurrent_calls)
        metrics.LISTEN_STREAMS_LIMIT.set(settings.limits.listen_streams)
        metrics.THREADS_LIMIT.set(settings.execution.threads, "busy")
        metrics.THREADS_LIMIT.set(settings.execution.max_abandoned_threads, "abandoned")
        self._end = metrics.read_with(self._read)

    def stop(self) -> None:
        """The parts are about to end."""
        if self._end is not None:
            self._end()

    def _read(self) -> None:
        courses, processes = self._courses, self._processes.counts()
        threads = courses.executor.threads
        metrics.CALLS_IN_FLIGHT.set(courses.endings.running)
        metrics.CALLS_ASKING.set(courses.executor.asking)
        metrics.THREADS.set(threads.running, "busy")
        metrics.THREADS.set(threads.idle, "idle")
        metrics.THREADS.set(threads.abandoned, "abandoned")
        metrics.PROCESSES.set(processes.busy, "busy")
        metrics.PROCESSES.set(processes.idle, "idle")
        metrics.PROCESSES.set(processes.starting, "starting")
        metrics.QUEUE.set(threads.waiting, "thread")
        metrics.QUEUE.set(processes.waiting, "process")
        metrics.CACHE_BYTES.set(courses.cache.size)
        metrics.LISTEN_STREAMS.set(self._hub.open_streams)
        catalog = self._registry.catalog
        metrics.TOOLS.set(len(catalog.tools))
        metrics.CATALOG.replace({(catalog.fingerprint[:16],): 1})
        problems = Counter(problem.severity for problem in self._registry.problems)
        for severity in ("error", "warning"):
            metrics.TOOL_PROBLEMS.set(problems[severity], severity)
