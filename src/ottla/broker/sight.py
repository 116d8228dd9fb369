"""What can be seen of a running broker from outside: `/metrics`, `/healthz`, `/readyz`."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ottla.base.errors import ConfigError
from ottla.broker import cluster_figures, metrics
from ottla.broker.awaiting import done
from ottla.broker.cluster_figures import ClusterFigures
from ottla.broker.http_endpoint import HttpEndpoint
from ottla.broker.loop_lag import LoopLag
from ottla.broker.parts import Parts, Surroundings
from ottla.protocol import api_keys

log = logging.getLogger("ottla.broker")


class Sight:
    """`is_ready`: whether this broker takes part."""

    def __init__(
        self, around: Surroundings, parts: Parts, lag: LoopLag, is_ready: Callable[[], bool]
    ) -> None:
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
        host = host.strip("[]")
        endpoint = HttpEndpoint(
            {
                "/metrics": self._metrics,
                "/healthz": self._health,
                "/readyz": self._readiness,
            }
        )
        try:
            port = await endpoint.start(host, int(wanted))
        except OSError as taken:
            # Two brokers on one machine is a normal day; metrics are not worth a refusal.
            port = await _start_anywhere(endpoint, host, where)
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

    # -- metrics ----------------------------------------------------------------------------

    async def _metrics(self) -> tuple[int, str]:
        """Read off on the loop, put into words in the pool: of ten thousand partitions there are
        forty thousand lines, and a scrape must not hold everybody up meanwhile."""
        return 200, await done(self._around.pool.run(metrics.exposition, self._figures()))

    def _figures(self) -> metrics.Figures:
        around, parts = self._around, self._parts
        stats, processor = around.stats, around.listening.processor
        return metrics.Figures(
            requests=[
                (api_keys.name_of(key), list(of_api.buckets), of_api.total_ns)
                for key, of_api in sorted(stats.by_key.items())
            ],
            bytes_in=stats.bytes_in,
            bytes_out=stats.bytes_out,
            connections_open=processor.count(),
            connections_opened=processor.opened_total(),
            topics=len(parts.metadata.image.topics),
            offline_partitions=sum(one.log is None for one in parts.replicas.all()),
            loop_lag_seconds=self._lag.seconds,
            pool_threads=around.pool.size,
            fetch_sessions=len(parts.services.fetch_sessions),
            logs=[
                (
                    held.topic,
                    held.partition,
                    held.size,
                    held.log_start_offset,
                    held.log_end_offset,
                    partition.high_watermark,
                )
                for partition, held in parts.replicas.online()
            ],
            cluster=self._cluster(),
            rooms=parts.reserve.rooms(),
        )

    def _cluster(self) -> Callable[[], ClusterFigures]:
        """What changes is read now; the image does not, and may be counted by another thread."""
        parts, broker_id = self._parts, self._around.broker_id
        image, settings = parts.metadata.image, parts.metadata.settings()
        writer, elected = parts.in_sync_writer, parts.metadata.duties.stats
        shrinks, expands = writer.shrinks, writer.expands
        elections, unclean = elected.elections, elected.unclean_elections
        own_lag = parts.copying.fetchers.lag_max()
        lag = max((partition.lag_max() for partition, _ in parts.replicas.online()), default=0)

        def count() -> ClusterFigures:
            figures = cluster_figures.count(image, broker_id, settings)
            figures.in_sync_shrinks, figures.in_sync_expands = shrinks, expands
            figures.elections, figures.unclean_elections = elections, unclean
            figures.copy_lag_max, figures.replica_lag_max = own_lag, lag
            return figures

        return count


async def _start_anywhere(endpoint: HttpEndpoint, host: str, where: str) -> int:
    try:
        return await endpoint.start(host, 0)
    except OSError as refused:
        raise ConfigError(f"ottla.metrics.listener: cannot listen on {where}: {refused}") from None
