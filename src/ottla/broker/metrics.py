"""What `/metrics` says: requests and latencies per API, log sizes, connections, loop lag.

Collected when asked; between two scrapes the broker only counts. prometheus-client is imported on
the first scrape, since it would cost start-up time that most runs never use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ottla.broker import cluster_figures
from ottla.broker.cluster_figures import ClusterFigures
from ottla.runtime.log_dir_reserve import Room
from ottla.runtime.request_stats import BUCKETS_NS


@dataclass(slots=True)
class Figures:
    """What a scrape tells, as it was at one moment; nothing in here changes any more."""

    requests: list[tuple[str, list[int], int]]
    """Of each API: its name, how many took how long, and the time of all in nanoseconds."""
    bytes_in: int
    bytes_out: int
    connections_open: int
    connections_opened: int
    topics: int
    offline_partitions: int
    loop_lag_seconds: float
    pool_threads: int
    fetch_sessions: int
    logs: list[tuple[str, int, int, int, int, int]]
    """Of each online log: topic, partition, bytes, first offset, next offset, watermark."""
    cluster: Callable[[], ClusterFigures]
    rooms: list[Room]
    """Of each online log dir, what was found at the last look."""


def exposition(figures: Figures) -> str:
    """In the pool."""
    from prometheus_client import CollectorRegistry, ProcessCollector
    from prometheus_client.exposition import generate_latest

    registry = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=registry)
    registry.register(_Collector(figures))
    return generate_latest(registry).decode()


class _Collector:
    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Any]:
        yield from self._requests()
        yield from self._logs()
        yield from self._rooms()
        yield from self._gauges()
        yield from cluster_figures.families(self._figures.cluster())

    def _requests(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily

        figures = self._figures
        latency = HistogramMetricFamily(
            "ottla_request_seconds", "Time from a request's frame to its answer.", labels=["api"]
        )
        for name, counts, total_ns in figures.requests:
            latency.add_metric([name], _cumulative(counts), total_ns / 1e9)
        yield latency
        for name, text, value in (
            ("ottla_received_bytes", "Bytes of requests.", figures.bytes_in),
            ("ottla_sent_bytes", "Bytes of answers.", figures.bytes_out),
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
        for topic, partition, size_bytes, first, following, high_watermark in self._figures.logs:
            names = [topic, str(partition)]
            size.add_metric(names, size_bytes)
            start.add_metric(names, first)
            end.add_metric(names, following)
            committed.add_metric(names, high_watermark)
        yield from (size, start, end, committed)

    def _rooms(self) -> Iterator[Any]:
        from prometheus_client.core import GaugeMetricFamily

        labels = ["log_dir"]
        free = GaugeMetricFamily(
            "ottla_log_dir_free_bytes", "Bytes left on its file system.", labels=labels
        )
        reserve = GaugeMetricFamily(
            "ottla_log_dir_reserve_bytes", "Below so many produce is refused.", labels=labels
        )
        short = GaugeMetricFamily(
            "ottla_log_dir_short_of_room", "1 while produce is refused there.", labels=labels
        )
        for room in self._figures.rooms:
            free.add_metric([room.log_dir], room.free_bytes)
            reserve.add_metric([room.log_dir], room.reserve_bytes)
            short.add_metric([room.log_dir], room.is_short)
        yield from (free, reserve, short)

    def _gauges(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        figures = self._figures
        yield CounterMetricFamily(
            "ottla_connections_opened", "Accepted so far.", value=figures.connections_opened
        )
        gauges: tuple[tuple[str, str, float], ...] = (
            ("ottla_connections_open", "Connections open now.", figures.connections_open),
            ("ottla_topics", "Topics known.", figures.topics),
            ("ottla_offline_partitions", "Partitions without a log.", figures.offline_partitions),
            ("ottla_loop_lag_seconds", "How late the loop's clock runs.", figures.loop_lag_seconds),
            ("ottla_handler_threads", "Handler pool size.", figures.pool_threads),
            ("ottla_fetch_sessions", "Incremental fetch sessions.", figures.fetch_sessions),
        )
        for name, text, value in gauges:
            yield GaugeMetricFamily(name, text, value=value)


def _cumulative(counts: list[int]) -> list[tuple[str, float]]:
    total = 0
    buckets: list[tuple[str, float]] = []
    for bound_ns, count in zip(BUCKETS_NS, counts, strict=False):
        total += count
        buckets.append((str(bound_ns / 1e9), total))
    buckets.append(("+Inf", total + counts[-1]))
    return buckets
