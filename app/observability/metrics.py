"""Every metric of the server, in one table. Whoever has something to count imports it from here.

They are of the process, as its log is. ``docs/operations.md`` says what to make of each.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from app.observability.counting import Counter, Family, Gauge, Histogram, Names
from app.settings.metrics import BUCKETS, MAX_TOOLS

UNKNOWN: Final = "(unknown)"
"""Label of every tool that a caller cannot see, and of every method that MCP does not have."""

NONE: Final = "(none)"
"""Label of what there is not: a method that could not be read, a status that was never sent."""

_LAG_BUCKETS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_STATE_BUCKETS: Final = (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)

FAMILIES: Final[dict[str, Family]] = {}
"""By name."""


def _counter(name: str, help: str, *labels: str) -> Counter:  # noqa: A002  # Prometheus' word
    FAMILIES[name] = family = Counter(name, help, labels)
    return family


def _gauge(name: str, help: str, *labels: str, across: Any = "sum") -> Gauge:  # noqa: A002  # likewise
    FAMILIES[name] = family = Gauge(name, help, labels, across=across)
    return family


def _histogram(name: str, help: str, *labels: str, bounds: Sequence[float]) -> Histogram:  # noqa: A002  # likewise
    FAMILIES[name] = family = Histogram(name, help, labels, bounds=bounds)
    return family


# Requests and calls.

TOOL_CALLS: Final = _counter(
    "mcp_tool_calls_total", "Calls of tools, by how they ended.", "tool", "outcome"
)
RESPONSE_TIME: Final = _histogram(
    "mcp_response_time_seconds",
    "From a call's arrival to its answer; refused calls are not in it.",
    "tool",
    bounds=BUCKETS,
)
REQUESTS: Final = _counter(
    "mcp_requests_total", "Messages of clients that have ended.", "method", "era", "status"
)
CALLS_IN_FLIGHT: Final = _gauge(
    "mcp_calls_in_flight", "Calls whose code has not ended, those that nobody waits for included."
)
CALLS_LIMIT: Final = _gauge("mcp_calls_limit", "How many calls may run at once.")
CALLS_ASKING: Final = _gauge("mcp_calls_asking", "Calls that wait for a person.")

# What refuses calls, and what spares them.

AUTHENTICATIONS: Final = _counter(
    "mcp_authentications_total", "Credentials that were looked at, by what was found.", "outcome"
)
LIMITED: Final = _counter(
    "mcp_limited_total", "Requests that were refused for want of room or rate.", "setting"
)
UNCOUNTED: Final = _counter(
    "mcp_uncounted_total", "Requests that the store could not count.", "decision"
)
CACHE_LOOKUPS: Final = _counter(
    "mcp_cache_lookups_total", "Results that were looked for among the kept ones.", "result"
)
CACHE_BYTES: Final = _gauge("mcp_cache_bytes", "Memory of the results that are kept.")

# What carries calls.

THREADS: Final = _gauge("mcp_threads", "Threads of synchronous tools.", "state")
THREADS_LIMIT: Final = _gauge(
    "mcp_threads_limit", "How many threads may be busy, or abandoned.", "state"
)
PROCESSES: Final = _gauge("mcp_processes", "Worker processes of isolated tools.", "state")
PROCESSES_KILLED: Final = _counter(
    "mcp_processes_killed_total", "Worker processes that did not end in peace.", "reason"
)
QUEUE: Final = _gauge("mcp_queue_length", "Calls that wait for a thread or a process.", "carrier")
LOOP_LAG: Final = _histogram(
    "mcp_event_loop_lag_seconds",
    "How late the event loop was, looked at twice a second.",
    bounds=_LAG_BUCKETS,
)
LOOP_BLOCKED: Final = _counter(
    "mcp_event_loop_blocked_total", "Times that the event loop was later than a second."
)

# Listeners.

LISTEN_STREAMS: Final = _gauge("mcp_listen_streams", "Streams of listeners that are open.")
LISTEN_STREAMS_LIMIT: Final = _gauge("mcp_listen_streams_limit", "How many of them there may be.")
NOTIFICATIONS: Final = _counter(
    "mcp_notifications_sent_total", "Notifications that were sent to clients.", "method"
)

# The catalog.

TOOLS: Final = _gauge("mcp_tools", "Tools of the catalog.", across="max")
CATALOG: Final = _gauge(
    "mcp_catalog_info", "1 for each catalog that is served.", "fingerprint", across="max"
)
RELOADS: Final = _counter(
    "mcp_reloads_total", "Times that something changed was taken up.", "what", "result"
)
TOOL_PROBLEMS: Final = _gauge(
    "mcp_tool_problems", "Problems of the tool files as they are.", "severity", across="max"
)

# What the fleet shares, and the record of auditors.

STATE_SECONDS: Final = _histogram(
    "mcp_state_operation_seconds",
    "How long the shared state took for an operation.",
    "operation",
    bounds=_STATE_BUCKETS,
)
STATE_ERRORS: Final = _counter(
    "mcp_state_errors_total", "Operations of the shared state that failed.", "operation", "reason"
)
AUDIT_FAILURES: Final = _counter(
    "mcp_audit_failures_total", "Answers that left before their record was written."
)

# The process.

BUILD: Final = _gauge(
    "mcp_build_info", "1, with what is running.", "version", "python", across="max"
)
SERVERS: Final = _gauge("mcp_server_processes", "Processes that serve and were counted here.")
CPU_SECONDS: Final = _counter("process_cpu_seconds_total", "Processor time, user and system.")
RESIDENT: Final = _gauge("process_resident_memory_bytes", "Resident memory.")
VIRTUAL: Final = _gauge("process_virtual_memory_bytes", "Virtual memory.")
OPEN_FDS: Final = _gauge(
    "process_open_fds", "Open file descriptors, of the process that has most.", across="max"
)
MAX_FDS: Final = _gauge("process_max_fds", "How many a process may have.", across="min")
START_TIME: Final = _gauge(
    "process_start_time_seconds", "When the oldest process was started.", across="min"
)

tools: Final = Names(MAX_TOOLS)
"""Labels of tools."""

_readers: list[Callable[[], None]] = []


def configure(*, buckets: Sequence[float], max_tools: int) -> None:
    """Settings of the process, before anything is counted."""
    RESPONSE_TIME.rebound(buckets)
    tools.most = max_tools


def read_with(reader: Callable[[], None]) -> Callable[[], None]:
    """Call ``reader`` in the event loop before gauges are read. Returns what ends that."""
    _readers.append(reader)

    def end() -> None:
        if reader in _readers:
            _readers.remove(reader)

    return end


def read() -> None:
    """Let every reader set its gauges."""
    for reader in tuple(_readers):
        reader()
