"""End-to-end latency: one record of 200 B at a time, produced with acks=all and consumed."""

from __future__ import annotations

from bench.case import Case, Figure, Figures
from bench.kafka_tools import end_to_end_latency
from bench.kernel_part import with_kernel_part
from bench.loads import run_load
from bench.side import Side
from bench.sizes import Sizes
from ottla.protocol.api_keys import FIND_COORDINATOR

SIZE = 200


def latency(side: Side, sizes: Sizes) -> Figures:
    with side.topic("latency") as topic:
        return run_load(
            "rdkafka_latency",
            bootstrap=side.broker.bootstrap,
            pid=side.broker.pid,
            topic=topic,
            seconds=sizes.latency_seconds,
            size=SIZE,
        )


def latency_java(side: Side, sizes: Sizes) -> Figures:
    with side.topic("latency-java") as topic:
        return end_to_end_latency(side.broker, topic, records=sizes.latency_java_rounds, size=SIZE)


FIGURES = (
    Figure("average_ms", "average", "ms", at_most=0.6),
    Figure("p50_ms", "p50", "ms"),
    Figure("p99_ms", "p99", "ms", at_most=0.8),
    *with_kernel_part(Figure("cpu_ms_per_round", "broker CPU", "ms/round", at_most=0.4)),
)

LATENCY_CASES = (
    Case("latency", "end-to-end latency 200 B by confluent-kafka", 3, FIGURES, latency),
    Case(
        "latency_java",
        "end-to-end latency 200 B, EndToEndLatency",
        4,
        FIGURES,
        latency_java,
        needs_api=FIND_COORDINATOR,
    ),
)
