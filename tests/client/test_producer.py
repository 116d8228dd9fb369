"""The plain producer on Ottla and on Apache Kafka: rows 33 to 39 and 51 to 53 of the features."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import pytest

from ottla.client import Admin, Producer, RecordMetadata
from ottla.client.errors import (
    BrokerError,
    BufferFullError,
    ClosedError,
    RecordTooLargeError,
    TimedOutError,
    UnknownTopicError,
)
from ottla.client.murmur2 import partition_of
from ottla.records.batch_builder import RecordToWrite, build_batch
from tests.client.admin_calls import create_topic, is_there
from tests.client.reading import stored, values
from tests.compat.nodes import wait_until

PATIENCE_S = 60


def test_a_sync_send_says_where_the_record_is(cluster: str, topic: str) -> None:
    with Producer(bootstrap_servers=cluster) as producer:
        first = producer.send(topic, b"one", b"key", [("h", b"1"), ("n", None)], timestamp_ms=5)
        assert first.result(PATIENCE_S) == RecordMetadata(topic, 0, 0, 5)
        assert first.done()
        assert first.exception() is None
        assert producer.send(topic).get(PATIENCE_S).offset == 1
    records = stored(cluster, topic)
    assert records[0][1:6] == (0, 5, b"key", b"one", (("h", b"1"), ("n", None)))
    assert records[1][3:5] == (None, None)


def test_callbacks_come_in_order_per_partition_with_every_outcome(cluster: str, topic: str) -> None:
    create_topic(cluster, topic, 2)
    told: dict[int, list[tuple[int, int]]] = {0: [], 1: []}
    with Producer(bootstrap_servers=cluster, linger_ms=1, batch_size=200) as producer:
        for number in range(500):
            partition = number % 2

            def tell(metadata: Any, error: Any, number: int = number, at: int = partition) -> None:
                assert error is None
                told[at].append((number, metadata.offset))

            producer.send(topic, b"%d" % number, partition=partition, on_delivery=tell)
        producer.flush(PATIENCE_S)
    for partition in (0, 1):
        assert told[partition] == [(2 * index + partition, index) for index in range(250)]


def test_a_flush_ends_when_the_callbacks_have_run(cluster: str, topic: str) -> None:
    """So whoever flushes knows of every failure by then, as with other clients."""
    flushed = threading.Event()
    saw_the_end: list[bool] = []
    with Producer(bootstrap_servers=cluster) as producer:

        def slow(metadata: Any, error: Any) -> None:
            saw_the_end.append(flushed.wait(0.05))

        for number in range(3):
            producer.send(topic, b"%d" % number, on_delivery=slow)
        producer.flush(PATIENCE_S)
        flushed.set()
        assert saw_the_end == [False, False, False]
        told = producer.send(topic, b"last", on_delivery=lambda *_: producer.flush())
        told.result(PATIENCE_S)  # and one from a callback waits for nobody


def test_a_callback_may_send_and_must_not_wait(cluster: str, topic: str) -> None:
    done = threading.Event()
    refused: list[BaseException] = []
    with Producer(bootstrap_servers=cluster) as producer:

        def then(metadata: Any, error: Any) -> None:
            second = producer.send(topic, b"second", on_delivery=lambda *_: done.set())
            try:
                second.result()
            except Exception as wrong:  # noqa: BLE001 (it is told below)
                refused.append(wrong)

        producer.send(topic, b"first", on_delivery=then)
        assert done.wait(PATIENCE_S)
    assert "wait for itself" in str(refused[0])
    assert values(cluster, topic) == [b"first", b"second"]


def test_records_are_batched_within_batch_size(cluster: str, topic: str) -> None:
    # It lingers for longer than the test takes: however slow that is, a batch goes when it is full.
    with Producer(bootstrap_servers=cluster, linger_ms=60_000, batch_size=1000) as producer:
        producer.send(topic, b"first")
        producer.flush(PATIENCE_S)
        before = producer.metrics()["batch-send-total"]
        for number in range(1000):
            producer.send(topic, b"%06d" % number)
        producer.flush(PATIENCE_S)
        batches = producer.metrics()["batch-send-total"] - before
    records = stored(cluster, topic)[1:]
    assert [record.value for record in records] == [b"%06d" % number for number in range(1000)]
    # 14 bytes a record: 67 fit between the header and 1,000 bytes.
    assert batches == len({record.batch for record in records})
    assert batches <= 20


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_codecs_come_back(cluster: str, topic: str, codec: str) -> None:
    sent = [b"%d " % number * 50 for number in range(300)]
    with Producer(bootstrap_servers=cluster, compression_type=codec, linger_ms=20) as producer:
        for value in sent:
            producer.send(topic, value)
    assert values(cluster, topic) == sent


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks(cluster: str, topic: str, acks: str) -> None:
    with Producer(bootstrap_servers=cluster, acks=acks) as producer:
        metadata = [producer.send(topic, b"%d" % number) for number in range(100)]
        offsets = [one.result(PATIENCE_S).offset for one in metadata]
        assert offsets == ([-1] * 100 if acks == "0" else list(range(100)))
        if acks == "0":
            # Nobody answers those; an answer on the same connection comes after them all.
            producer.partitions_for(topic)
    with Producer(bootstrap_servers=cluster) as other:
        while other.send(topic, b"end").result(PATIENCE_S).offset < 100:
            pass
    assert values(cluster, topic)[:100] == [b"%d" % number for number in range(100)] or acks == "0"


def test_keys_go_where_javas_client_puts_them(cluster: str, topic: str) -> None:
    create_topic(cluster, topic, 7)
    with Producer(bootstrap_servers=cluster) as producer:
        places = {
            key: producer.send(topic, b"v", key) for key in (b"%d" % number for number in range(99))
        }
        for key, place in places.items():
            assert place.result(PATIENCE_S).partition == partition_of(key, 7)


def test_a_partition_can_be_named(cluster: str, topic: str) -> None:
    create_topic(cluster, topic, 3)
    with Producer(bootstrap_servers=cluster) as producer:
        assert producer.partitions_for(topic) == 3
        assert producer.send(topic, b"v", partition=2).result(PATIENCE_S).partition == 2
        for wrong in (3, -1):
            with pytest.raises(UnknownTopicError, match="partitions 0 to 2"):
                producer.send(topic, b"v", partition=wrong)


def test_without_a_key_records_stick_to_a_partition_for_a_batch(cluster: str, topic: str) -> None:
    create_topic(cluster, topic, 4)
    # No batch goes before it is full, and so many are drawn that chance leaves no partition out.
    with Producer(bootstrap_servers=cluster, linger_ms=60_000, batch_size=1000) as producer:
        for number in range(6000):
            producer.send(topic, b"%06d" % number)
    records = stored(cluster, topic)
    assert len(records) == 6000
    assert len({record.partition for record in records}) == 4
    assert len({(record.partition, record.batch) for record in records}) <= 180


def test_round_robin_and_a_partitioner_of_ones_own(cluster: str, topic: str) -> None:
    create_topic(cluster, topic, 4)
    with Producer(bootstrap_servers=cluster, partitioner_class="RoundRobinPartitioner") as one:
        turns = [one.send(topic, b"v", b"k").result(PATIENCE_S).partition for _ in range(8)]
    assert turns == [0, 1, 2, 3] * 2

    def last(topic: str, key: bytes | None, value: bytes | None, partitions: list[int]) -> int:
        return partitions[-1]

    with Producer(bootstrap_servers=cluster, partitioner_class=last) as own:
        assert own.send(topic, b"v", b"k").result(PATIENCE_S).partition == 3


def test_serializers(cluster: str, topic: str) -> None:
    with Producer(
        bootstrap_servers=cluster,
        value_serializer=str.encode,
        key_serializer=lambda key: b"%d" % key,
    ) as producer:
        producer.send(topic, "wörld", 7).result(PATIENCE_S)
    assert stored(cluster, topic)[0][3:5] == (b"7", "wörld".encode())
    with Producer(bootstrap_servers=cluster) as producer:
        with pytest.raises(TypeError, match=r"value\.serializer"):
            producer.send(topic, "text")
        producer.send(topic, bytearray(b"a"), memoryview(b"b")).result(PATIENCE_S)


def test_a_record_that_is_too_large_here_or_there(cluster: str, topic: str) -> None:
    create_topic(cluster, topic, 1, {"max.message.bytes": "2000"})
    with Producer(bootstrap_servers=cluster, max_request_size=10_000) as producer:
        with pytest.raises(RecordTooLargeError, match=r"max\.request\.size"):
            producer.send(topic, bytes(10_000))
        large = producer.send(topic, bytes(5_000))
        with pytest.raises(RecordTooLargeError, match="MESSAGE_TOO_LARGE"):
            large.result(PATIENCE_S)
        # The one that failed leaves no gap that would stop those after it.
        assert producer.send(topic, b"small").result(PATIENCE_S).offset == 0


def test_a_batch_that_is_too_large_is_split(cluster: str, topic: str) -> None:
    create_topic(cluster, topic, 1, {"max.message.bytes": "2000"})
    told: list[int] = []
    with Producer(bootstrap_servers=cluster, linger_ms=200, batch_size=20_000) as producer:
        deliveries = [
            producer.send(
                topic, b"%04d" % number * 20, on_delivery=lambda m, e: told.append(m.offset)
            )
            for number in range(150)
        ]
        offsets = [one.result(PATIENCE_S).offset for one in deliveries]
        assert producer.metrics()["batch-split-total"] > 0
    assert offsets == told == list(range(150))
    assert values(cluster, topic) == [b"%04d" % number * 20 for number in range(150)]


def test_an_encoded_batch(cluster: str, topic: str) -> None:
    encoded = build_batch([RecordToWrite(7, b"k", b"%d" % number) for number in range(10)], codec=4)
    with Producer(bootstrap_servers=cluster) as producer:
        producer.send(topic, b"before")
        delivery = producer.send_batch(topic, 0, encoded)
        producer.send(topic, b"after")
        assert delivery.result(PATIENCE_S) == RecordMetadata(topic, 0, 10, 7)
    assert values(cluster, topic) == [
        b"before",
        *(b"%d" % number for number in range(10)),
        b"after",
    ]


def test_memory_that_is_full_makes_send_wait(cluster: str, topic: str) -> None:
    with Producer(bootstrap_servers=cluster, buffer_memory=20_000, batch_size=4_000) as producer:
        for number in range(3_000):
            producer.send(topic, b"%04d" % number + bytes(100))
            assert producer.metrics()["buffer-available-bytes"] >= 0
    assert [value[:4] for value in values(cluster, topic) if value] == [
        b"%04d" % number for number in range(3_000)
    ]


def test_many_threads_share_a_producer(cluster: str, topic: str) -> None:
    with Producer(bootstrap_servers=cluster) as producer:

        def work(name: int) -> None:
            for number in range(500):
                producer.send(topic, b"%d %d" % (name, number))

        threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        producer.flush(PATIENCE_S)
    found = values(cluster, topic)
    for name in range(4):
        mine = [value for value in found if value is not None and value.startswith(b"%d " % name)]
        assert mine == [b"%d %d" % (name, number) for number in range(500)]


def test_nobody_there(topic: str) -> None:
    with (
        Producer(bootstrap_servers="127.0.0.1:1", max_block_ms=300) as producer,
        pytest.raises(TimedOutError, match=r"127\.0\.0\.1:1"),
    ):
        producer.send(topic, b"v")


def test_close_ends_it(cluster: str, topic: str) -> None:
    producer = Producer(bootstrap_servers=cluster, linger_ms=10_000)
    late = producer.send(topic, b"v")
    producer.close()
    assert late.result(0).offset == 0
    with pytest.raises(ClosedError):
        producer.send(topic, b"v")
    producer.close()


def knows(producer: Producer, topic: str) -> bool:
    """Asked for before, as `max.block.ms` is for this as well, and short for what is tested."""
    try:
        return producer.partitions_for(topic) > 0
    except (BrokerError, TimedOutError):
        return False


def test_a_full_memory_that_stays_full_is_told(topic: str, ottla_broker: Any) -> None:
    with Producer(
        bootstrap_servers=ottla_broker.bootstrap, buffer_memory=2_000, max_block_ms=300
    ) as producer:
        wait_until(lambda: knows(producer, topic), PATIENCE_S, "the topic")
        producer.send(topic, b"v").result(PATIENCE_S)
        ottla_broker.stop()
        with pytest.raises(BufferFullError, match=r"buffer\.memory"):
            for _ in range(100):
                producer.send(topic, bytes(100))
        producer.close(0)


def test_a_topic_that_is_made_anew_has_its_own_partitions(cluster: str, topic: str) -> None:
    keys = [b"%d" % number for number in range(20)]
    with Admin(bootstrap_servers=cluster) as admin, Producer(bootstrap_servers=cluster) as producer:
        for partitions in (4, 1, 3):
            admin.create_topic(topic, partitions)
            wait_until(partial(is_there, admin, topic, partitions), PATIENCE_S, "the new one")
            producer.send(topic, b"first", partition=0).result(PATIENCE_S)
            sent = [producer.send(topic, b"x", key=key) for key in keys]
            places = [one.result(PATIENCE_S).partition for one in sent]
            assert places == [partition_of(key, partitions) for key in keys]
            with pytest.raises(UnknownTopicError):
                producer.send(topic, b"x", partition=partitions)
            admin.delete_topic(topic)
            # Kafka's brokers hear of it a moment after the controller, and take records until then.
            wait_until(partial(is_there, admin, topic, 0), PATIENCE_S, "the end of the old one")
