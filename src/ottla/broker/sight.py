"""What can be seen of a running broker from outside: `/metrics`, `/healthz`, `/readyz`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from ottla.broker import cluster_figures, metrics
from ottla.broker.cluster_figures import ClusterFigures
from ottla.broker.http_endpoint import HttpEndpoint
from ottla.broker.loop_lag import LoopLag
from ottla.broker.parts import Parts, Surroundings
from ottla.log.partition_log import PartitionLog

log = logging.getLogger("ottla.broker")


class Sight:
    """`is_ready`: whether this broker takes part."""

    def __init__(
        self, around: Surroundings, parts: Parts, lag: LoopLag, is_ready: Callable[[], bool]
    ) -> None:
        self.stats = around.stats
        self._around = around
        self._parts = parts
        self._lag = lag
        self._is_ready = is_ready
        self._http: HttpEndpoint | None = None

    async def start(self, where: str) -> int | None:
        """The port; None where it is switched off."""
        if not where:
            return None
        host, _, wanted = where.rpartition(":")
        endpoint = HttpEndpoint(
            {
                "/metrics": lambda: (200, metrics.exposition(self)),
                "/healthz": self._health,
                "/readyz": self._readiness,
            }
        )
        try:
            port = await endpoint.start(host, int(wanted))
        except OSError as taken:
            # Two brokers on one machine is a normal day; metrics are not worth a refusal.
            port = await endpoint.start(host, 0)
            log.warning("%s is taken (%s): metrics are on port %d", where, taken, port)
        self._http = endpoint
        return port

    async def stop(self) -> None:
        if self._http is not None:
            await self._http.stop()

    def _health(self) -> tuple[int, str]:
        log_dirs = self._around.log_dirs
        failed = [f"{one.path}: {one.error}" for one in log_dirs if one.error is not None]
        if failed and len(failed) == len(log_dirs):
            return 503, "every log dir is offline\n" + "\n".join(failed) + "\n"
        return 200, "\n".join(["ok", *failed]) + "\n"

    def _readiness(self) -> tuple[int, str]:
        return (200, "ready\n") if self._is_ready() else (503, "not ready\n")

    # -- for metrics ------------------------------------------------------------------------

    def connections(self) -> tuple[int, int]:
        processor = self._around.listening.processor
        return processor.count(), processor.opened_total()

    def logs(self) -> Iterable[tuple[PartitionLog, int]]:
        replicas = self._parts.replicas
        return ((held, partition.high_watermark) for partition, held in replicas.online())

    def offline_partitions(self) -> int:
        return sum(partition.log is None for partition in self._parts.replicas.all())

    def loop_lag_seconds(self) -> float:
        return self._lag.seconds

    def pool_threads(self) -> int:
        return self._around.pool.size

    def fetch_sessions(self) -> int:
        return len(self._parts.services.fetch_sessions)

    def topics(self) -> int:
        return len(self._parts.metadata.image.topics)

    def cluster(self) -> ClusterFigures:
        parts = self._parts
        metadata = parts.metadata
        figures = cluster_figures.count(metadata.image, self._around.broker_id, metadata.settings())
        figures.in_sync_shrinks = parts.in_sync_writer.shrinks
        figures.in_sync_expands = parts.in_sync_writer.expands
        figures.elections = metadata.duties.stats.elections
        figures.unclean_elections = metadata.duties.stats.unclean_elections
        figures.replica_lag_max = max(
            (partition.lag_max() for partition, _ in parts.replicas.online()), default=0
        )
        return figures
