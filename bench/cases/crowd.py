"""What others cost a busy client: a reader of cold data, many connections, many partitions.

The busy client is measured without and with them, right after one another; what counts is how much
slower it gets, for each broker against itself.
"""

from __future__ import annotations

import resource
import time
from contextlib import ExitStack

from bench.brokers import Broker
from bench.case import CROWDED, Case, Figure, Figures
from bench.loads import Load
from bench.side import Side
from bench.sizes import Sizes
from bench.topics import create_topic
from bench.warm_up import BUSY, COLD_1K, busy
from bench.wire import CLIENT_ID, Connection
from ottla.protocol.api_keys import API_VERSIONS

# The reader drops the page cache first; what it slows down is measured while it reads.
READER_AHEAD_S = 1.0
_DESCRIPTORS_SPARE = 500
CROWD_TOPICS = 4


def catch_up(side: Side, sizes: Sizes) -> Figures:
    without = busy(side.broker, sizes.busy_seconds)
    seconds = sizes.busy_seconds + 2 * READER_AHEAD_S
    with Load(
        "catch_up",
        bootstrap=side.broker.bootstrap,
        topic=COLD_1K,
        records=sizes.cold_1k_records,
        directory=str(side.broker.data / f"{COLD_1K}-0"),
        seconds=seconds,
    ) as reader:
        time.sleep(READER_AHEAD_S)
        beside = busy(side.broker, sizes.busy_seconds)
        read = reader.figures()
    return {
        **_compared(without, beside),
        "reader_mb_per_s": read["mb_per_s"],
        "still_cached": read["still_cached"],
    }


def connections(side: Side, sizes: Sizes) -> Figures:
    without = busy(side.broker, sizes.busy_seconds)
    _allow_descriptors(sizes.connections + _DESCRIPTORS_SPARE)
    software = {"client_software_name": CLIENT_ID, "client_software_version": "1"}
    with ExitStack() as open_connections:
        for _ in range(sizes.connections):
            connection = open_connections.enter_context(Connection(side.broker.bootstrap))
            connection.call(API_VERSIONS, 3, software)
        beside = busy(side.broker, sizes.busy_seconds)
        resident_mb = side.broker.resident_bytes() / 2**20
    return {**_compared(without, beside), "resident_mb": resident_mb}


def partitions(side: Side, sizes: Sizes) -> Figures:
    def crowd(broker: Broker) -> None:
        create_topic(broker.bootstrap, BUSY)
        # Kafka makes no 10,000 partitions at one request (POLICY_VIOLATION).
        for number in range(CROWD_TOPICS):
            create_topic(broker.bootstrap, f"crowd-{number}", sizes.partitions // CROWD_TOPICS)
        busy(broker, sizes.warm_seconds)

    crowded = side.beside("crowded", crowd)
    without = busy(side.broker, sizes.busy_seconds)
    beside = busy(crowded, sizes.busy_seconds)
    resident_mb = crowded.resident_bytes() / 2**20
    return {**_compared(without, beside), "resident_mb": resident_mb}


def _compared(without: Figures, beside: Figures) -> dict[str, float]:
    return {
        "average_times": beside["average_ms"] / without["average_ms"],
        "p99_times": beside["p99_ms"] / without["p99_ms"],
        "average_ms_without": without["average_ms"],
        "average_ms_with": beside["average_ms"],
        "p99_ms_without": without["p99_ms"],
        "p99_ms_with": beside["p99_ms"],
    }


def _allow_descriptors(wanted: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))


CROWDED_FIGURES = (
    Figure("average_times", "busy client's average", "times", at_most=1.2, own=True),
    Figure("p99_times", "busy client's p99", "times", own=True),
    Figure("resident_mb", "memory", "MB", at_most=0.3),
)

CROWD_CASES = (
    Case(
        "catch_up",
        "a catch-up reader over cold data",
        3,
        (
            Figure("p99_times", "busy client's p99", "times", at_most=1.5, own=True),
            Figure("p99_ms_with", "busy client's p99", "ms"),
            Figure("reader_mb_per_s", "reader", "MB/s"),
        ),
        catch_up,
    ),
    Case("connections", "1,000 open connections", 3, CROWDED_FIGURES, connections),
    Case("partitions", "10,000 partitions", 3, CROWDED_FIGURES, partitions, block=CROWDED),
)
