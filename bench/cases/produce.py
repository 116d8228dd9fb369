"""Produce: Kafka's ProducerPerformance with the Java client's defaults, and confluent-kafka."""

from __future__ import annotations

from bench.case import Case, Figure, Figures, cpu_per_gib, throughput
from bench.kafka_tools import producer_performance
from bench.kernel_part import with_kernel_part
from bench.loads import run_load
from bench.side import Side
from bench.sizes import KIB, Sizes
from bench.warm_up import SMALL_BATCHES

P99 = Figure("p99_ms", "p99", "ms")


def produce_1k(side: Side, sizes: Sizes) -> Figures:
    with side.topic("produce-1k") as topic:
        return producer_performance(side.broker, topic, records=sizes.produce_1k_records, size=KIB)


def produce_100b(side: Side, sizes: Sizes) -> Figures:
    with side.topic("produce-100b") as topic:
        return producer_performance(
            side.broker, topic, records=sizes.produce_100b_records, size=100
        )


def produce_1k_12(side: Side, sizes: Sizes) -> Figures:
    with side.topic("produce-1k-12", 12) as topic:
        return producer_performance(side.broker, topic, records=sizes.produce_12_records, size=KIB)


def produce_small(side: Side, sizes: Sizes) -> Figures:
    with side.topic("produce-small") as topic:
        return producer_performance(
            side.broker,
            topic,
            records=sizes.produce_small_records,
            size=100,
            properties=SMALL_BATCHES,
        )


def produce_rdkafka(side: Side, sizes: Sizes) -> Figures:
    records = sizes.produce_rdkafka_records
    with side.topic("produce-rdkafka", room=records * KIB) as topic:
        return run_load(
            "rdkafka_produce",
            bootstrap=side.broker.bootstrap,
            pid=side.broker.pid,
            topic=topic,
            records=records,
            size=KIB,
        )


PRODUCE_CASES = (
    Case(
        "produce_1k",
        "produce 1 KB, Java defaults, one partition",
        3,
        (throughput(at_least=1.3), *with_kernel_part(cpu_per_gib(at_most=0.35)), P99),
        produce_1k,
    ),
    Case(
        "produce_100b",
        "produce 100 B, one partition",
        3,
        (throughput(at_least=1.2), *with_kernel_part(cpu_per_gib(at_most=0.5)), P99),
        produce_100b,
    ),
    Case(
        "produce_1k_12",
        "produce 1 KB on 12 partitions",
        3,
        (throughput(at_least=1.2), *with_kernel_part(cpu_per_gib(at_most=0.4)), P99),
        produce_1k_12,
    ),
    Case(
        "produce_small",
        "produce 100 B in 1 KB batches, linger 0",
        3,
        (throughput(at_least=1.5), *with_kernel_part(cpu_per_gib(at_most=0.3)), P99),
        produce_small,
    ),
    Case(
        "produce_rdkafka",
        "produce 1 KB by confluent-kafka",
        3,
        (throughput(at_least=0.95), *with_kernel_part(cpu_per_gib(at_most=0.5))),
        produce_rdkafka,
    ),
)
