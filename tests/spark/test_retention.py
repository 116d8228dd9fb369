"""Retention by time under a reader: segments that go while a batch is read, or between two batches.

The broker is one of this file alone, since its clock is moved: the older of two loads of records is
past retention, segment by segment, and its files are gone from the disk. What must hold: an error
with topic, offsets and remedy, or with failOnDataLoss=false exactly the records that are left.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import OffsetSpec
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from ottla.spark.errors import DataLoss
from ottla.spark.source import batch_reader
from ottla.testing import Broker
from tests.spark.batches import COLUMNS, through_text, values_between
from tests.spark.queries import CollectingQuery, run_to_the_end, stalled_read, until
from tests.spark.topics import SECONDS_MAX, Topics

OLD, ALL = 200, 300
FIRST_BATCH = 80  # the batch after it is gone as a whole, the next one in part


@pytest.fixture(scope="module")
def aging() -> Iterator[Broker]:
    with Broker({"log.retention.check.interval.ms": 60_000}) as found:
        yield found


class AgingTopic:
    """One partition: `OLD` records, and forty minutes later the rest. They are kept for an hour."""

    def __init__(self, broker: Broker, test: str) -> None:
        self._broker = broker
        self._topics = Topics(broker.bootstrap, test)
        self.name = self._topics.create(
            "in",
            1,
            retention_ms="3600000",
            internal_segment_bytes="500",
            segment_ms="1800000",  # so that none has both old and new records
            file_delete_delay_ms="0",
            message_timestamp_type="LogAppendTime",
        )
        self.options = {
            "kafka.bootstrap.servers": broker.bootstrap,
            "subscribe": self.name,
            "startingOffsets": "earliest",
        }
        self._fill(range(OLD))
        broker.advance(minutes=40)
        self._fill(range(OLD, ALL))

    def _fill(self, values: range) -> None:
        # In small pieces: a batch of records is never divided between segments.
        for first in values[::10]:
            self._topics.fill("in", range(first, first + 10), partitions=1)

    def expire_the_old(self) -> None:
        self._broker.advance(minutes=30)
        until(lambda: self._begins_at(OLD), "the end of the old segments")

    def expire_all(self) -> None:
        self._broker.advance(hours=2)
        until(lambda: self._begins_at(ALL), "the end of all segments")

    def _begins_at(self, offset: int) -> bool:
        place = ck.TopicPartition(self.name, 0)
        (done,) = self._topics.admin.list_offsets({place: OffsetSpec.earliest()}).values()
        return int(done.result(SECONDS_MAX).offset) == offset == min(self._segments())

    def _segments(self) -> list[int]:
        found = Path(self._broker.data_dir).rglob(f"{self.name}-0/*.log")
        return [int(path.stem) for path in found]


@pytest.fixture
def topic(aging: Broker, request: pytest.FixtureRequest) -> AgingTopic:
    return AgingTopic(aging, request.node.name)


def lost(topic: AgingTopic, start: int, end: int) -> str:
    """What the error says."""
    return (
        rf"{topic.name}-0: {end - start} offsets from {start} on are deleted; the partition begins "
        rf"at ({OLD}|{ALL}) now\. Keep records longer \(retention\.ms.*failOnDataLoss=false"
    )


def test_what_was_planned_before_and_is_read_after(stream: Any, topic: AgingTopic) -> None:
    strict = stream(**topic.options)
    lenient = stream(**topic.options, failOnDataLoss="false")
    start = strict.initialOffset()
    end = through_text(strict.latestOffset(start, ReadAllAvailable()))
    batches = [
        batch_reader({**topic.options, "failOnDataLoss": fails}, COLUMNS)
        for fails in ("true", "false")
    ]
    (task,) = batches[0].partitions()
    topic.expire_the_old()
    with pytest.raises(DataLoss, match=lost(topic, 0, OLD)):
        values_between(strict, start, end)
    with pytest.raises(DataLoss, match=lost(topic, 0, OLD)):
        list(batches[0].read(task))
    assert values_between(lenient, start, end) == list(range(OLD, ALL))
    offsets = [batch.column("offset").to_pylist() for batch in batches[1].read(task)]
    assert list(itertools.chain.from_iterable(offsets)) == list(range(OLD, ALL))
    topic.expire_all()
    with pytest.raises(DataLoss, match=lost(topic, 0, ALL)):
        values_between(strict, start, end)
    assert values_between(lenient, start, end) == []


def test_what_is_planned_after_it_has_gone(stream: Any, topic: AgingTopic) -> None:
    """A batch that ends before the first record that is left, and the one after."""
    strict = stream(**topic.options)
    lenient = stream(**topic.options, failOnDataLoss="false")
    start = strict.latestOffset(strict.initialOffset(), ReadMaxRows(10))
    topic.expire_the_old()
    end = strict.latestOffset(start, ReadMaxRows(20))
    with pytest.raises(DataLoss, match=lost(topic, 10, 30)):
        values_between(strict, start, end)
    assert values_between(lenient, start, end) == []
    rest = lenient.latestOffset(end, ReadAllAvailable())
    with pytest.raises(DataLoss, match=lost(topic, 30, OLD)):
        values_between(strict, end, rest)
    assert values_between(lenient, end, rest) == list(range(OLD, ALL))


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_query_whose_records_go_between_two_batches(
    spark: Any, topic: AgingTopic, tmp_path: Path, fails: str
) -> None:
    options = {**topic.options, "maxOffsetsPerTrigger": str(FIRST_BATCH), "failOnDataLoss": fails}
    query = CollectingQuery(spark, options, tmp_path, between=topic.expire_the_old)
    if fails == "true":
        for _ in range(2):  # a query that is only started again has not been helped
            with pytest.raises(Exception, match=lost(topic, FIRST_BATCH, 2 * FIRST_BATCH)):
                run_to_the_end(query.start)
        assert query.values() == {0: list(range(FIRST_BATCH))}
        return
    run_to_the_end(query.start)
    assert list(itertools.chain.from_iterable(query.values().values())) == [
        *range(FIRST_BATCH),
        *range(OLD, ALL),
    ]


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_query_whose_records_go_within_a_batch(
    spark: Any, topic: AgingTopic, tmp_path: Path, crash_plan: Path, fails: str
) -> None:
    """Its task waits after the first of its rows until the segments are gone."""
    query = CollectingQuery(spark, {**topic.options, "failOnDataLoss": fails}, tmp_path)
    with stalled_read(query.start, crash_plan) as running:
        topic.expire_the_old()
    if fails == "true":
        # A task that has failed is tried again, from the beginning of its batch.
        with pytest.raises(Exception, match=lost(topic, 0, OLD)):
            running.awaitTermination()
        assert query.values() == {}
        return
    run_to_the_end(lambda: running)
    read = sum(1 for number in query.values()[0] if number < OLD)
    assert 0 < read < OLD
    assert query.values() == {0: [*range(read), *range(OLD, ALL)]}
