"""What `/metrics` says: requests and latencies per API, log sizes, connections, loop lag.

Collected when asked; between two scrapes the broker only counts. prometheus-client is imported on
the first scrape, since it would cost start-up time that most runs never use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from ottla.broker import cluster_figures
from ottla.broker.cluster_figures import ClusterFigures
from ottla.log.partition_log import PartitionLog
from ottla.protocol import api_keys
from ottla.runtime.request_stats import BUCKETS_NS, ApiStats, RequestStats


class Sources(Protocol):
    """Where the figures come from."""

    stats: RequestStats

    def connections(self) -> tuple[int, int]:
        """Open now, opened in all."""
        ...

    def logs(self) -> Iterable[tuple[PartitionLog, int]]:
        """Each online log and its high watermark."""
        ...

    def offline_partitions(self) -> int: ...
    def loop_lag_seconds(self) -> float: ...
    def pool_threads(self) -> int: ...
    def fetch_sessions(self) -> int: ...
    def topics(self) -> int: ...
    def cluster(self) -> ClusterFigures: ...


def exposition(sources: Sources) -> str:
    from prometheus_client import CollectorRegistry, ProcessCollector
    from prometheus_client.exposition import generate_latest

    registry = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=registry)
    registry.register(_Collector(sources))
    return generate_latest(registry).decode()


class _Collector:
    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    def collect(self) -> Iterator[Any]:
        yield from self._requests()
        yield from self._logs()
        yield from self._gauges()
        yield from cluster_figures.families(self._sources.cluster())

    def _requests(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily

        stats = self._sources.stats
        latency = HistogramMetricFamily(
            "ottla_request_seconds", "Time from a request's frame to its answer.", labels=["api"]
        )
        for key, of_api in sorted(stats.by_key.items()):
            buckets = _cumulative(of_api)
            latency.add_metric([api_keys.name_of(key)], buckets, of_api.total_ns / 1e9)
        yield latency
        for name, text, value in (
            ("ottla_received_bytes", "Bytes of requests.", stats.bytes_in),
            ("ottla_sent_bytes", "Bytes of answers.", stats.bytes_out),
        ):
            yield CounterMetricFamily(name, text, value=value)

    def _logs(self) -> Iterator[Any]:
        from prometheus_client.core import GaugeMetricFamily

        labels = ["topic", "partition"]
        size = GaugeMetricFamily("ottla_log_size_bytes", "Bytes of a partition.", labels=labels)
        start = GaugeMetricFamily("ottla_log_start_offset", "First offset.", labels=labels)
        end = GaugeMetricFamily("ottla_log_end_offset", "Next offset.", labels=labels)
        committed = GaugeMetricFamily(
            "ottla_high_watermark", "First offset not committed.", labels=labels
        )
        for log, high_watermark in self._sources.logs():
            names = [log.topic, str(log.partition)]
            size.add_metric(names, log.size)
            start.add_metric(names, log.log_start_offset)
            end.add_metric(names, log.log_end_offset)
            committed.add_metric(names, high_watermark)
        yield from (size, start, end, committed)

    def _gauges(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        sources = self._sources
        open_now, opened = sources.connections()
        yield CounterMetricFamily("ottla_connections_opened", "Accepted so far.", value=opened)
        gauges: tuple[tuple[str, str, Callable[[], float]], ...] = (
            ("ottla_connections_open", "Connections open now.", lambda: open_now),
            ("ottla_topics", "Topics known.", sources.topics),
            ("ottla_offline_partitions", "Partitions without a log.", sources.offline_partitions),
            ("ottla_loop_lag_seconds", "How late the loop's clock runs.", sources.loop_lag_seconds),
            ("ottla_handler_threads", "Handler pool size.", sources.pool_threads),
            ("ottla_fetch_sessions", "Incremental fetch sessions.", sources.fetch_sessions),
        )
        for name, text, read in gauges:
            yield GaugeMetricFamily(name, text, value=read())


def _cumulative(stats: ApiStats) -> list[tuple[str, float]]:
    total = 0
    buckets: list[tuple[str, float]] = []
    for bound_ns, count in zip(BUCKETS_NS, stats.buckets, strict=False):
        total += count
        buckets.append((str(bound_ns / 1e9), total))
    buckets.append(("+Inf", total + stats.buckets[-1]))
    return buckets
