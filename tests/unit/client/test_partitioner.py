"""Goal: records without a key go where they are taken. Method: lanes with batches that wait."""

from __future__ import annotations

import pytest

from ottla.client.accumulator import Accumulator, TopicLanes
from ottla.client.cluster import Cluster
from ottla.client.partitioner import Partitioner
from ottla.client.producer_settings import ProducerSettings
from ottla.client.settings import read_settings
from ottla.protocol.primitives import NULL_UUID

TOPIC = "t"
NOW_MS = 10_000.0


def drawn(waiting_since_ms: dict[int, float], **settings: int) -> set[int]:
    """The partitions that are drawn when some have batches that wait."""
    read = read_settings(ProducerSettings, {"bootstrap.servers": "broker:9000"}, settings)
    accumulator = Accumulator(read, Cluster())
    topic = accumulator.topics[TOPIC] = TopicLanes(TOPIC)
    topic.resize(3, NULL_UUID)
    for partition, since_ms in waiting_since_ms.items():
        accumulator.open_batch(topic.lanes[partition], 100, since_ms)
    chances = iter([step / 100 for step in range(100)])
    partitioner = Partitioner(read, Cluster(), lambda: next(chances), lambda: NOW_MS)
    return {partitioner.draw(topic) for _ in range(100)}


@pytest.mark.parametrize(
    ("waiting_since_ms", "expected"),
    [
        ({0: NOW_MS - 2_000}, {1, 2}),
        ({0: NOW_MS - 1_000}, {0, 1, 2}),
        ({0: 0.0, 1: 0.0, 2: 0.0}, {0, 1, 2}),
    ],
)
def test_a_partition_that_has_not_been_taken_from_for_too_long_is_not_drawn(
    waiting_since_ms: dict[int, float], expected: set[int]
) -> None:
    settings = {"partitioner_availability_timeout_ms": 1_500, "linger_ms": 5}
    assert drawn(waiting_since_ms, **settings) == expected


def test_without_a_time_out_all_are_drawn() -> None:
    assert drawn({0: 0.0}) == {0, 1, 2}
