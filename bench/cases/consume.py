"""Consume: confluent-kafka by `assign`; Kafka's ConsumerPerformance once there are groups.

Both read what the Java producer wrote in the warm-up, from the page cache.
"""

from __future__ import annotations

from bench.case import Case, Figures, cpu_per_gib, throughput
from bench.kafka_tools import consumer_performance
from bench.kernel_part import with_kernel_part
from bench.loads import run_load
from bench.side import Side
from bench.sizes import KIB, Sizes
from bench.warm_up import KEPT_1K, KEPT_100B
from ottla.protocol.api_keys import FIND_COORDINATOR


def consume_1k(side: Side, sizes: Sizes) -> Figures:
    return _by_rdkafka(side, sizes, KEPT_1K, sizes.kept_1k_records, KIB)


def consume_100b(side: Side, sizes: Sizes) -> Figures:
    return _by_rdkafka(side, sizes, KEPT_100B, sizes.kept_100b_records, 100)


def consume_java_1k(side: Side, sizes: Sizes) -> Figures:
    return consumer_performance(side.broker, KEPT_1K, records=sizes.kept_1k_records, size=KIB)


def consume_java_100b(side: Side, sizes: Sizes) -> Figures:
    return consumer_performance(side.broker, KEPT_100B, records=sizes.kept_100b_records, size=100)


def _by_rdkafka(side: Side, sizes: Sizes, topic: str, records: int, size: int) -> Figures:
    return run_load(
        "rdkafka_consume",
        bootstrap=side.broker.bootstrap,
        pids=[side.broker.pid],
        topic=topic,
        records=records,
        size=size,
        seconds=sizes.consume_seconds,
    )


FIGURES = (throughput(at_least=0.95), *with_kernel_part(cpu_per_gib(at_most=0.5)))

CONSUME_CASES = (
    Case("consume_1k", "consume 1 KB by confluent-kafka", 3, FIGURES, consume_1k),
    Case("consume_100b", "consume 100 B by confluent-kafka", 3, FIGURES, consume_100b),
    Case(
        "consume_java_1k",
        "consume 1 KB, ConsumerPerformance",
        4,
        FIGURES,
        consume_java_1k,
        needs_api=FIND_COORDINATOR,
    ),
    Case(
        "consume_java_100b",
        "consume 100 B, ConsumerPerformance",
        4,
        FIGURES,
        consume_java_100b,
        needs_api=FIND_COORDINATOR,
    ),
)
