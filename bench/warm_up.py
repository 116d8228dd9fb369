"""Warms a broker and leaves the topics that the reading cases use.

Kafka is a JIT: cold, it needs more than twice the processor time. Before anything counts each side
takes 3 GiB of records (in a full run), by every client that will measure it, and gives some of them
back. Ottla gets the same, so that the page cache and the disk have the same past.
"""

from __future__ import annotations

from collections.abc import Callable

from bench.brokers import Broker
from bench.kafka_tools import producer_performance
from bench.loads import run_load
from bench.side import Side
from bench.sizes import KIB, Sizes
from bench.topics import create_topic

KEPT_1K = "kept-1k"
KEPT_100B = "kept-100b"
COLD_1K = "cold-1k"
BUSY = "busy"
SMALL_BATCHES = ("batch.size=1024", "linger.ms=0")

Step = tuple[str, Callable[[Side, Sizes], object]]


def steps() -> list[Step]:
    """Each with what it is called while it runs."""
    return [
        ("1 KB by the Java producer", _fill_1k),
        ("100 B by the Java producer", _fill_100b),
        ("12 partitions", _warm_12),
        ("small batches", _warm_small),
        ("1 KB by confluent-kafka", _fill_cold),
        ("reading it back", _read_back),
        ("one record at a time", _warm_latency),
    ]


def _fill_1k(side: Side, sizes: Sizes) -> None:
    create_topic(side.broker.bootstrap, KEPT_1K)
    producer_performance(side.broker, KEPT_1K, records=sizes.kept_1k_records, size=KIB)


def _fill_100b(side: Side, sizes: Sizes) -> None:
    create_topic(side.broker.bootstrap, KEPT_100B)
    producer_performance(side.broker, KEPT_100B, records=sizes.kept_100b_records, size=100)


def _warm_12(side: Side, sizes: Sizes) -> None:
    with side.topic("warm-12", 12) as topic:
        producer_performance(side.broker, topic, records=sizes.warm_12_records, size=KIB)


def _warm_small(side: Side, sizes: Sizes) -> None:
    with side.topic("warm-small") as topic:
        producer_performance(
            side.broker, topic, records=sizes.warm_small_records, size=100, properties=SMALL_BATCHES
        )


def _fill_cold(side: Side, sizes: Sizes) -> None:
    create_topic(side.broker.bootstrap, COLD_1K)
    run_load(
        "rdkafka_produce",
        bootstrap=side.broker.bootstrap,
        pid=side.broker.pid,
        topic=COLD_1K,
        records=sizes.cold_1k_records,
        size=KIB,
        linger_ms=50,
    )


def _read_back(side: Side, sizes: Sizes) -> None:
    for topic, records, size in (
        (KEPT_1K, sizes.kept_1k_records, KIB),
        (KEPT_100B, sizes.kept_100b_records, 100),
    ):
        run_load(
            "rdkafka_consume",
            bootstrap=side.broker.bootstrap,
            pids=[side.broker.pid],
            topic=topic,
            records=records,
            size=size,
            seconds=sizes.warm_seconds,
        )


def _warm_latency(side: Side, sizes: Sizes) -> None:
    create_topic(side.broker.bootstrap, BUSY)
    busy(side.broker, sizes.warm_seconds)
    with side.topic("warm-latency") as topic:
        run_load(
            "rdkafka_latency",
            bootstrap=side.broker.bootstrap,
            pid=side.broker.pid,
            topic=topic,
            seconds=sizes.warm_seconds,
            size=200,
        )


def busy(broker: Broker, seconds: float) -> dict[str, float]:
    """Latencies of the busy client on a broker that has its topic."""
    return run_load("busy", bootstrap=broker.bootstrap, pid=broker.pid, topic=BUSY, seconds=seconds)
