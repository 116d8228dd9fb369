"""The figures of a cluster as one broker sees them, under the names that Kafka's exporters use.

Partitions are counted by their leaders, so that the sum over all brokers is that of the cluster;
those without a leader by the controller, who is the only one with a 1 for itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ottla.base.ids import NO_BROKER
from ottla.metadata.image import MetadataImage
from ottla.metadata.partition_rules import effective_min_in_sync
from ottla.metadata.topic_settings import TopicSettings


@dataclass(slots=True)
class ClusterFigures:
    leaders: int = 0
    under_replicated: int = 0
    under_min_in_sync: int = 0
    reassigning: int = 0
    leaderless: int = 0
    is_controller: bool = False
    live_brokers: int = 0
    fenced_brokers: int = 0
    in_sync_shrinks: int = 0
    in_sync_expands: int = 0
    elections: int = 0
    unclean_elections: int = 0
    copy_lag_max: int = 0
    replica_lag_max: int = 0


def count(image: MetadataImage, broker_id: int, settings: TopicSettings) -> ClusterFigures:
    """What can be read off the image."""
    figures = ClusterFigures(is_controller=image.controller_id == broker_id)
    figures.live_brokers = len(image.live_brokers())
    figures.fenced_brokers = len(image.brokers) - figures.live_brokers
    for topic in image.topics.values():
        in_sync_min = None
        for state in topic.partitions.values():
            if state.leader == NO_BROKER:
                figures.leaderless += figures.is_controller
            if state.leader != broker_id:
                continue
            if in_sync_min is None:
                in_sync_min = settings.min_in_sync(topic)
            figures.leaders += 1
            # Who is being added is not missed yet.
            missing = set(state.replicas) - set(state.adding) - set(state.in_sync)
            figures.under_replicated += bool(missing)
            enough = effective_min_in_sync(in_sync_min, len(state.replicas))
            figures.under_min_in_sync += len(state.in_sync) < enough
            figures.reassigning += state.is_reassigning()
    return figures


def families(figures: ClusterFigures) -> Iterator[Any]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    for name, text, value in (
        ("server_replicamanager_leadercount", "Partitions led.", figures.leaders),
        (
            "server_replicamanager_underreplicatedpartitions",
            "Partitions led of which a replica is not in sync.",
            figures.under_replicated,
        ),
        (
            "server_replicamanager_underminisrpartitioncount",
            "Partitions led that have fewer in sync than min.insync.replicas.",
            figures.under_min_in_sync,
        ),
        (
            "server_replicamanager_reassigningpartitions",
            "Partitions led that are being moved.",
            figures.reassigning,
        ),
        (
            "controller_kafkacontroller_offlinepartitionscount",
            "Partitions that nobody leads; counted by the controller.",
            figures.leaderless,
        ),
        (
            "controller_kafkacontroller_activecontrollercount",
            "1 on the controller, 0 elsewhere.",
            figures.is_controller,
        ),
        (
            "controller_kafkacontroller_activebrokercount",
            "Brokers that take part.",
            figures.live_brokers,
        ),
        (
            "controller_kafkacontroller_fencedbrokercount",
            "Brokers that are known and do not.",
            figures.fenced_brokers,
        ),
        (
            "server_replicafetchermanager_maxlag",
            "Offsets by which this broker is behind the watermark of a partition that it follows.",
            figures.copy_lag_max,
        ),
    ):
        yield GaugeMetricFamily(f"kafka_{name}", text, value=value)
    yield GaugeMetricFamily(
        "ottla_replica_lag_max",
        "Offsets by which the slowest replica of a partition led here is behind, alive or not.",
        value=figures.replica_lag_max,
    )
    for name, text, value in (
        ("server_replicamanager_isrshrinks", "In-sync sets made smaller.", figures.in_sync_shrinks),
        ("server_replicamanager_isrexpands", "In-sync sets made larger.", figures.in_sync_expands),
        (
            "controller_controllerstats_leaderelections",
            "Partitions that got another leader while this broker was the controller.",
            figures.elections,
        ),
        (
            "controller_controllerstats_uncleanleaderelections",
            "Those of them that may have lost records.",
            figures.unclean_elections,
        ),
    ):
        yield CounterMetricFamily(f"kafka_{name}", text, value=value)
