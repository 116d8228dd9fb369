"""The plain consumer on Ottla and on Apache Kafka, by itself: positions, ends, times, pauses, what
transactions leave behind; records and tables of the same log.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any, cast

import pytest

from ottla.client import Consumer, OffsetAndMetadata, Producer, Record
from ottla.client.consumer_errors import NoOffsetError, NotAssignedError, OffsetOutOfRangeError
from ottla.client.errors import ClosedError, ConfigError, TimedOutError
from tests.client.admin_calls import create_topic
from tests.client.members import FIRST_MS, PATIENCE_S, fill, read, until
from tests.compat.nodes import wait_until


def consumer_of(cluster: str, **settings: Any) -> Consumer:
    usual = {"bootstrap_servers": cluster, "auto_offset_reset": "earliest", "fetch_max_wait_ms": 50}
    return Consumer({**usual, **settings})


def test_all_of_a_record_comes_back(cluster: str, topic: str) -> None:
    with Producer(bootstrap_servers=cluster) as producer:
        headers = [("a", b"1"), ("b", None), ("a", b"")]
        producer.send(topic, b"value", b"key", headers, timestamp_ms=FIRST_MS).result(PATIENCE_S)
        producer.send(topic, None, None, timestamp_ms=FIRST_MS + 1).result(PATIENCE_S)
    with consumer_of(cluster) as consumer:
        consumer.assign((topic, 0))
        first, second = read(consumer, 2)
    assert (first.topic, first.partition, first.offset) == (topic, 0, 0)
    assert (first.timestamp, first.timestamp_type) == (FIRST_MS, 0)
    assert (first.key, first.value, first.headers) == (b"key", b"value", tuple(headers))
    assert (second.offset, second.key, second.value, second.headers) == (1, None, None, ())


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_and_tables_say_the_same(cluster: str, topic: str, codec: str) -> None:
    with Producer(bootstrap_servers=cluster, compression_type=codec, linger_ms=5) as producer:
        for number in range(600):
            producer.send(topic, b"v%d" % number * (number % 7), b"%d" % number)
        producer.flush(PATIENCE_S)
    with consumer_of(cluster) as consumer:
        consumer.assign((topic, 0))
        records = read(consumer, 600)
        consumer.seek((topic, 0), 100)
        rows = []
        until(
            lambda: rows.extend(consumer.fetch_table(max_rows=70, timeout_s=1).to_pylist()),
            lambda: len(rows) >= 500,
            "500 rows",
        )
    assert [record.offset for record in records] == list(range(600))
    assert [(row["offset"], row["key"], row["value"]) for row in rows] == [
        (record.offset, record.key, record.value) for record in records[100:]
    ]


def test_records_and_tables_may_be_mixed(cluster: str, topic: str) -> None:
    values = fill(cluster, topic, 300)
    with consumer_of(cluster) as consumer:
        consumer.assign((topic, 0))
        found = [record.value for record in read(consumer, 10)]
        table = consumer.fetch_table(max_rows=15, timeout_s=PATIENCE_S)
        found += table["value"].to_pylist()
        assert consumer.position((topic, 0)) == len(found)
        found += [record.value for record in read(consumer, 5)]
        found += consumer.fetch_table(max_rows=10_000, timeout_s=PATIENCE_S)["value"].to_pylist()
        found += [record.value for record in read(consumer, 300 - len(found))]
    assert found == values


def test_seeks_positions_and_ends(cluster: str, topic: str) -> None:
    create_topic(cluster, topic, 2)
    fill(cluster, topic, 20, partitions=2)
    zero, one = (topic, 0), (topic, 1)
    with consumer_of(cluster, max_poll_records=3) as consumer:
        consumer.assign([zero, one])
        assert consumer.assignment() == {zero, one}
        assert consumer.beginning_offsets([zero, one]) == {zero: 0, one: 0}
        assert consumer.end_offsets([zero, one]) == {zero: 10, one: 10}
        assert consumer.partitions_for(topic) == 2
        consumer.seek(zero, 8)
        consumer.seek_to_end(one)
        assert [record.value for record in read(consumer, 2)] == [b"16", b"18"]
        assert consumer.position(zero) == 10
        assert consumer.position(one) == 10
        assert consumer.lag() == {zero: 0, one: 0}
        consumer.seek_to_beginning()
        assert consumer.lag() == {zero: 10, one: 10}
        assert {record.offset for record in read(consumer, 20)} == set(range(10))
        with pytest.raises(NotAssignedError):
            consumer.seek((topic, 5), 0)
        with pytest.raises(ValueError, match="below 0"):
            consumer.seek(zero, -1)


def test_offsets_of_times(cluster: str, topic: str) -> None:
    fill(cluster, topic, 10)
    with consumer_of(cluster) as consumer:
        key = (topic, 0)
        found = consumer.offsets_for_times({key: FIRST_MS + 4})[key]
        assert found is not None
        assert (found.offset, found.timestamp) == (4, FIRST_MS + 4)
        assert consumer.offsets_for_times({key: FIRST_MS + 50}) == {key: None}
        with pytest.raises(ValueError, match="below 0"):
            consumer.offsets_for_times({key: -5})


def test_a_partition_that_is_not_there_is_named(cluster: str, topic: str) -> None:
    create_topic(cluster, topic, 2)
    with (
        consumer_of(cluster) as consumer,
        pytest.raises(TimedOutError, match="has partitions 0 to 1, not 9"),
    ):
        consumer.end_offsets((topic, 9), timeout_s=0.5)


def test_a_paused_partition_gives_nothing_until_it_is_resumed(cluster: str, topic: str) -> None:
    create_topic(cluster, topic, 2)
    fill(cluster, topic, 40, partitions=2)
    zero, one = (topic, 0), (topic, 1)
    with consumer_of(cluster) as consumer:
        consumer.assign([zero, one])
        read(consumer, 3)
        consumer.pause(zero)
        assert consumer.paused() == {zero}
        left = consumer.lag()
        assert {record.partition for record in read(consumer, left[one])} <= {1}
        assert consumer.poll(0.3) == []
        consumer.resume(zero)
        assert {record.partition for record in read(consumer, left[zero])} <= {0}
        assert consumer.lag() == {zero: 0, one: 0}


def test_iterating_counts_what_was_reached(cluster: str, topic: str) -> None:
    values = fill(cluster, topic, 30)
    group = f"g-{topic}"
    with consumer_of(cluster, group_id=group, enable_auto_commit=False) as consumer:
        consumer.assign((topic, 0))
        seen = []
        for record in consumer:
            seen.append(record.value)
            if len(seen) == 7:
                consumer.commit()
                break
        assert consumer.committed((topic, 0)) == {(topic, 0): OffsetAndMetadata(7)}
        assert consumer.position((topic, 0)) == 7
        for record in consumer:
            seen.append(record.value)
            if len(seen) == 12:
                break
        assert [record.value for record in read(consumer, 18)] == values[12:]
        assert seen == values[:12]


def _iterate(consumer: Consumer, between: Callable[[], object], last: int) -> list[int]:
    """The offsets handed out until the last one; after the fourth something is called."""
    offsets: list[int] = []
    for record in consumer:
        offsets.append(record.offset)
        if len(offsets) == 4:
            between()
        if record.offset == last:
            break
    return offsets


def test_what_is_called_inside_of_an_iteration_counts_at_once(cluster: str, topic: str) -> None:
    create_topic(cluster, topic, 2)
    fill(cluster, topic, 20, partitions=2)
    zero, one = (topic, 0), (topic, 1)
    rest: list[Record] = []
    with consumer_of(cluster) as consumer:
        consumer.assign(zero)
        assert _iterate(consumer, lambda: consumer.seek(zero, 8), 9) == [0, 1, 2, 3, 8, 9]
        consumer.seek(zero, 0)
        back = _iterate(consumer, lambda: consumer.seek(zero, 2), 9)
        assert back == [0, 1, 2, 3, 2, 3, 4, 5, 6, 7, 8, 9]
        consumer.seek(zero, 0)
        assert _iterate(consumer, lambda: rest.extend(consumer.poll(1, 3)), 9) == [
            0,
            1,
            2,
            3,
            7,
            8,
            9,
        ]
        assert [record.offset for record in rest] == [4, 5, 6]
        consumer.seek(zero, 0)
        assert _iterate(consumer, lambda: consumer.position(zero), 9) == list(range(10))
        assert consumer.position(zero) == 10, "nothing comes a second time"
        consumer.seek(zero, 0)
        assert _iterate(consumer, lambda: consumer.assign([zero]), 9) == list(range(10))
        consumer.assign([zero, one])
        consumer.seek(zero, 0)
        consumer.pause(one)
        assert _iterate(consumer, lambda: consumer.seek_to_end([]), 9) == list(range(10))


def test_a_seek_that_is_refused_costs_no_record(cluster: str, topic: str) -> None:
    fill(cluster, topic, 10)
    place = (topic, 0)

    def refused() -> None:
        with pytest.raises(ValueError, match="below 0"):
            consumer.seek(place, -1)
        with pytest.raises(NotAssignedError):
            consumer.seek_to_end([place, (topic, 1)])
        with pytest.raises(NotAssignedError):
            consumer.pause([place, (topic, 1)])
        with pytest.raises(ValueError, match="no topic and partition"):
            consumer.assign([(topic, -1)])

    with consumer_of(cluster) as consumer:
        consumer.assign(place)
        assert _iterate(consumer, refused, 9) == list(range(10))
        assert consumer.paused() == frozenset()


def test_nothing_is_guessed_without_a_reset(cluster: str, topic: str) -> None:
    fill(cluster, topic, 3)
    group = f"g-{topic}"
    with consumer_of(cluster, group_id=group, auto_offset_reset="none") as consumer:
        consumer.assign((topic, 0))
        with pytest.raises(NoOffsetError):
            until(lambda: consumer.poll(0.5), lambda: False, "an error")
        consumer.seek((topic, 0), 50)
        with pytest.raises(OffsetOutOfRangeError):
            until(lambda: consumer.poll(0.5), lambda: False, "an error")
        consumer.seek((topic, 0), 2)
        assert [record.value for record in read(consumer, 1)] == [b"2"]


def test_aborted_records_are_not_read_where_only_committed_ones_are(
    cluster: str, topic: str
) -> None:
    with Producer(bootstrap_servers=cluster, transactional_id=f"x-{topic}") as producer:
        for number in range(6):
            producer.begin_transaction()
            for part in range(3):
                producer.send(topic, b"%d.%d" % (number, part))
            producer.flush(PATIENCE_S)
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
        committed = [b"%d.%d" % (number, part) for number in (0, 2, 4) for part in range(3)]
        everything = [b"%d.%d" % (number, part) for number in range(6) for part in range(3)]
        with consumer_of(cluster, isolation_level="read_committed") as consumer:
            consumer.assign((topic, 0))
            assert [record.value for record in read(consumer, 9)] == committed
            # Brokers answer the last abort before its marker is written, which ends this.
            wait_until(
                lambda: consumer.end_offsets((topic, 0)) == {(topic, 0): 24},
                PATIENCE_S,
                "18 records and 6 markers",
            )
            until(
                lambda: consumer.poll(0.1),
                lambda: consumer.position((topic, 0)) == 24,
                "markers are passed over",
            )
            consumer.seek_to_beginning()
            table = consumer.fetch_table(timeout_s=PATIENCE_S)
            assert table["value"].to_pylist() == committed
        with consumer_of(cluster) as consumer:
            consumer.assign((topic, 0))
            assert [record.value for record in read(consumer, 18)] == everything


def test_deserializers_get_what_is_not_null(cluster: str, topic: str) -> None:
    with Producer(bootstrap_servers=cluster) as producer:
        producer.send(topic, b"5", b"five")
        producer.send(topic, None, b"none").result(PATIENCE_S)
    with consumer_of(
        cluster, value_deserializer=int, key_deserializer=lambda key: key.decode()
    ) as consumer:
        consumer.assign((topic, 0))
        assert [(one.key, one.value) for one in read(consumer, 2)] == [("five", 5), ("none", None)]


def test_a_closed_consumer_says_so_and_leaves_nothing_behind(cluster: str, topic: str) -> None:
    consumer = consumer_of(cluster, client_id=f"c-{topic}")
    consumer.assign((topic, 0))
    consumer.poll(0.1)
    consumer.close()
    consumer.close()
    names = {thread.name for thread in threading.enumerate()}
    assert f"ottla-consumer-c-{topic}" not in names
    with pytest.raises(ClosedError):
        consumer.poll(0.1)


def test_what_cannot_be_meant_is_refused() -> None:
    with Consumer(bootstrap_servers="127.0.0.1:1", group_id="g") as consumer:
        with pytest.raises(ConfigError, match="names of topics"):
            consumer.subscribe()
        with pytest.raises(ConfigError, match="names of topics"):
            consumer.subscribe("t", pattern="u")
        with pytest.raises(ConfigError, match="no regular expression"):
            consumer.subscribe(pattern="(")
        with pytest.raises(ValueError, match="max_records"):
            consumer.poll(0.1, 0)
        wrong: Any
        for wrong in (None, 7, "topic", ["topic"], [("t", "0")], [("t", 0, 1)], [("t", -1)]):
            with pytest.raises((TypeError, ValueError), match="no topic and partition"):
                consumer.assign(wrong)
        for wrong in ([("t", 0)], {"t": 1}, {("t", 0): None}, {("t",): 1}):
            with pytest.raises(TypeError, match="offsets"):
                consumer.commit(wrong)
        with pytest.raises(ValueError, match="below 0"):
            consumer.commit({("t", 0): -1})
        with pytest.raises(ValueError, match="above"):
            consumer.commit({("t", 0): 1 << 63})
        for wrong in (OffsetAndMetadata(1, cast(Any, "m")), OffsetAndMetadata(1, 0, cast(Any, 5))):
            with pytest.raises(TypeError, match="leader_epoch"):
                consumer.commit({("t", 0): wrong})
        for wrong in (1.5, "1", None):
            with pytest.raises(TypeError, match="offset of t-0 is a whole number"):
                consumer.seek(("t", 0), wrong)
            with pytest.raises(TypeError, match="time for t-0 is a whole number"):
                consumer.offsets_for_times({("t", 0): wrong})
        for wrong, why in ((-1, "below 0"), (1 << 63, "above")):
            with pytest.raises(ValueError, match=why):
                consumer.seek(("t", 0), wrong)
            with pytest.raises(ValueError, match=why):
                consumer.offsets_for_times({("t", 0): wrong})
        with pytest.raises(ValueError, match="no topic and partition"):
            consumer.offsets_for_times({"t": 1})  # type: ignore[dict-item]
        consumer.subscribe(re.compile("t.*"))
    with pytest.raises(ConfigError, match=r"group\.id"):
        Consumer(bootstrap_servers="127.0.0.1:1", groupid="g")
