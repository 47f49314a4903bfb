"""The metrics as text for Prometheus: the only module that knows prometheus-client."""

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

import structlog
from prometheus_client import ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from app.observability import metrics
from app.observability.counting import Gauge, Histogram
from app.observability.sharing import Folder, Snapshot, take

SHARE_S: Final = 1.0
"""How often a process tells the others what it has counted, at the latest."""

MAX_ACCEPT: Final = 1000

log = structlog.get_logger()


class Exposition:
    """Tells the metrics of this process and of those that serve with it.

    Args:
        folder: Where they meet; None: it is the only one.
    """

    def __init__(self, folder: Folder | None = None) -> None:
        self._folder = folder
        self._one_at_a_time = asyncio.Lock()
        self._process = ProcessCollector(registry=None)
        self._is_told = False

    async def __call__(self, accept: str = "") -> tuple[str, bytes]:
        """The content type and the body of ``GET /metrics``.

        Args:
            accept: The header of that name.
        """
        async with self._one_at_a_time:
            own = self._take()
            return await asyncio.to_thread(self._tell, own, accept[:MAX_ACCEPT])

    @asynccontextmanager
    async def sharing(self) -> AsyncIterator[None]:
        """Leave the metrics of this process for the others while the body runs, and at its end."""
        if self._folder is None:
            yield
            return
        sharing = asyncio.create_task(self._keep_sharing(self._folder), name="share metrics")
        try:
            yield
        finally:
            sharing.cancel()
            await asyncio.gather(sharing, return_exceptions=True)
            await self._share(self._folder)
            self._folder.close()

    async def _keep_sharing(self, folder: Folder) -> None:
        while True:
            await self._share(folder)
            await asyncio.sleep(SHARE_S)

    async def _share(self, folder: Folder) -> None:
        async with self._one_at_a_time:
            own = self._take()
            try:
                await asyncio.to_thread(lambda: folder.write(own.encoded()))
                self._is_told = False
            except OSError as error:
                self._cannot_share(error)

    def _take(self) -> Snapshot:
        metrics.read()
        metrics.SERVERS.set(1)
        self._read_process()
        return take()

    def _read_process(self) -> None:
        found = {metric.name: metric.samples for metric in self._process.collect()}
        for family in _OF_PROCESS:
            samples = found.get(family.name.removesuffix("_total"))
            if samples:
                family.values[()] = samples[0].value

    def _tell(self, own: Snapshot, accept: str) -> tuple[str, bytes]:
        if self._folder is not None:
            try:
                own = self._folder.with_others(own)
            except OSError as error:
                self._cannot_share(error)
        return rendered(own, accept)

    def _cannot_share(self, error: OSError) -> None:
        if not self._is_told:
            self._is_told = True
            log.warning("metrics_not_shared", problem=str(error))


def exposition(folder: Path | None) -> Exposition:
    """The metrics of this process, and of those that meet it in a folder."""
    if folder is None:
        return Exposition()
    return Exposition(Folder(folder, f"{os.getpid()}-{secrets.token_hex(4)}"))


_OF_PROCESS: Final = (
    metrics.CPU_SECONDS,
    metrics.RESIDENT,
    metrics.VIRTUAL,
    metrics.OPEN_FDS,
    metrics.MAX_FDS,
    metrics.START_TIME,
)


def rendered(snapshot: Snapshot, accept: str = "") -> tuple[str, bytes]:
    """A snapshot in the text format that is asked for, else in the plain one of Prometheus.

    Returns:
        The content type and the text.
    """
    encode, content_type = choose_encoder("")
    with suppress(ValueError, LookupError):  # of a header that is no such header
        encode, content_type = choose_encoder(accept)
    return content_type, encode(_Told(snapshot))


class _Told(Collector):
    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterable[Metric]:
        for name, family in metrics.FAMILIES.items():
            series = sorted(self._snapshot.values.get(name, {}).items())
            if isinstance(family, Histogram):
                bounds = self._snapshot.bounds.get(name, family.bounds)
                yield _histogram(family, bounds, series)
            elif isinstance(family, Gauge):
                gauge = GaugeMetricFamily(name, family.help, labels=family.labels)
                for labels, value in series:
                    gauge.add_metric(labels, value)
                yield gauge
            else:
                counter = CounterMetricFamily(name, family.help, labels=family.labels)
                # One without labels is told from the beginning, so that its first step is one.
                for labels, value in series or ([] if family.labels else [((), 0)]):
                    counter.add_metric(labels, value)
                yield counter


def _histogram(
    family: Histogram, bounds: Sequence[float], series: Iterable[tuple[tuple[str, ...], Any]]
) -> HistogramMetricFamily:
    texts = [*map(floatToGoString, bounds), "+Inf"]
    histogram = HistogramMetricFamily(family.name, family.help, labels=family.labels)
    for labels, (*counts, total) in series:
        buckets = list(zip(texts, accumulate(counts), strict=True))
        histogram.add_metric(labels, buckets, total)
    return histogram
