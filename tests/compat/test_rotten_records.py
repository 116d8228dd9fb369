"""Goal: stored records that rot are found while the broker runs, are never served again, and are
copied anew from where they are right; the only copy is left as it is, for people to look at (F9).
Method: brokers of ottla.testing that look over their records all the time; a byte of a segment is
changed behind their back, and confluent-kafka reads. What is waited for has a minute.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.log.corrupt_mark import NAME
from ottla.testing import Broker, Cluster
from tests.compat.test_testing_cluster import until
from tests.compat.wire import Wire, fetch

SETTINGS = {"log.flush.interval.messages": 1, "ottla.scrub.interval.ms": 200}
NOT_BY_ITSELF = {**SETTINGS, "ottla.scrub.interval.ms": -1}
RETRIED = (KafkaError.KAFKA_STORAGE_ERROR, KafkaError.NOT_LEADER_FOR_PARTITION)
SEGMENT = f"{0:020d}.log"


def create(bootstrap: str, *topics: str, replicas: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for created in admin.create_topics([NewTopic(one, 1, replicas) for one in topics]).values():
        created.result(60)


def produce(bootstrap: str, topic: str, numbers: range) -> None:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0, "linger.ms": 0}
    )
    for number in numbers:
        producer.produce(topic, f"record {number:05d}".encode() * 20)
        producer.flush(60)
    assert len(producer) == 0


def consume(bootstrap: str, topic: str, count: int) -> list[int]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "auto.offset.reset": "error",
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    numbers: list[int] = []
    while len(numbers) < count:
        for message in consumer.consume(count - len(numbers), 5):
            error = message.error()
            if error is not None:
                assert error.retriable() or error.code() in RETRIED, error
                continue
            value = message.value()
            assert value is not None
            numbers.append(int(value[7:12]))
    consumer.close()
    return numbers


def flip(path: Path, position: int, bits: int = 0x40) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        before = file.read(1)[0]
        file.seek(position)
        file.write(bytes([before ^ bits]))


def put(path: Path, position: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(content)


def is_offline(bootstrap: str, topic: str) -> bool:
    """Nobody leads it, and who asks for its records all the same gets none."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    [partition] = admin.list_topics(topic, 60).topics[topic].partitions.values()
    with Wire(bootstrap) as wire:
        code = int(fetch(wire, topic, 0).error_code)
    return partition.leader == -1 and code == KafkaError.KAFKA_STORAGE_ERROR


def told(caplog: pytest.LogCaptureFixture, words: str) -> int:
    return sum(words in record.getMessage() for record in caplog.records)


def test_the_only_copy_goes_offline_is_told_of_once_and_left_as_it_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING), Broker(SETTINGS) as broker:
        create(broker.bootstrap, "rotten", "sound")
        for topic in ("rotten", "sound"):
            produce(broker.bootstrap, topic, range(50))
        path = Path(broker.data_dir, "rotten-0", SEGMENT)
        size = path.stat().st_size
        flip(path, size // 2)
        content = path.read_bytes()
        until(lambda: is_offline(broker.bootstrap, "rotten"))
        assert consume(broker.bootstrap, "sound", 50) == list(range(50))
        broker.advance(hours=1)
        assert told(caplog, "partition rotten-0 is offline") == 1
        assert f"{SEGMENT}: a batch is broken at position" in caplog.text

        broker.restart()
        assert is_offline(broker.bootstrap, "rotten"), "nobody has said that it is right again"
        assert told(caplog, "partition rotten-0 is offline") == 2
        broker.restart()
        assert is_offline(broker.bootstrap, "rotten")
        assert path.read_bytes() == content

        broker.stop()
        flip(path, size // 2)
        path.with_name(NAME).unlink()
        broker.start()
        assert consume(broker.bootstrap, "rotten", 50) == list(range(50))
        produce(broker.bootstrap, "rotten", range(50, 60))


@pytest.mark.parametrize("length", [-12, -1_000, 2**31 - 1])
def test_a_length_that_has_rotted_holds_up_nobody(
    length: int, caplog: pytest.LogCaptureFixture
) -> None:
    """No CRC covers it, and nothing is looked over here by itself. Who reads on behind it, from a
    place that is not in the index, must not make the broker walk in a circle: the others would wait
    for ever."""
    with caplog.at_level(logging.WARNING), Broker(NOT_BY_ITSELF) as broker:
        create(broker.bootstrap, "rotten", "sound")
        for topic in ("rotten", "sound"):
            produce(broker.bootstrap, topic, range(10))
        path = Path(broker.data_dir, "rotten-0", SEGMENT)
        put(path, path.stat().st_size // 10 * 4 + 8, length.to_bytes(4, "big", signed=True))
        reader = Consumer(
            {"bootstrap.servers": broker.bootstrap, "group.id": "unused", "log_level": 0}
        )
        reader.assign([TopicPartition("rotten", 0, 7)])
        until(lambda: reader.poll(0.1) is None and is_offline(broker.bootstrap, "rotten"))
        reader.close()
        assert consume(broker.bootstrap, "sound", 10) == list(range(10))
        assert told(caplog, "partition rotten-0 is offline") == 1


def test_a_closed_segment_that_was_cut_holds_up_nobody_who_reads(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A reader that comes to its end is told, instead of getting a piece of a batch for ever."""
    settings = {**NOT_BY_ITSELF, "log.segment.bytes": 1024 * 1024}
    with caplog.at_level(logging.WARNING), Broker(settings) as broker:
        create(broker.bootstrap, "rotten")
        producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
        for number in range(40):
            producer.produce("rotten", f"record {number:05d}".encode() + bytes(100_000))
            producer.flush(60)
        broker.stop()
        closed = sorted(Path(broker.data_dir, "rotten-0").glob("*.log"))[1]
        os.truncate(closed, closed.stat().st_size - 500)
        broker.start()
        reader = Consumer(
            {"bootstrap.servers": broker.bootstrap, "group.id": "unused", "log_level": 0}
        )
        reader.assign([TopicPartition("rotten", 0, int(closed.stem))])
        until(lambda: reader.poll(0.1) is None and is_offline(broker.bootstrap, "rotten"))
        reader.close()
        assert told(caplog, "partition rotten-0 is offline") == 1


def committed(bootstrap: str, group: str) -> int | None:
    """None while no coordinator tells."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    try:
        [found] = consumer.committed([TopicPartition("t", 0)], 5)
    except KafkaException:
        return None
    finally:
        consumer.close()
    return None if found.error else int(found.offset)


def test_a_coordinator_tells_no_offset_that_has_rotted(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is looked over here by itself; a coordinator that starts again reads all it has."""
    with caplog.at_level(logging.WARNING), Broker(NOT_BY_ITSELF) as broker:
        create(broker.bootstrap, "t")
        for group in ("rotten", "sound"):
            reader = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
            reader.commit(offsets=[TopicPartition("t", 0, 1005)], asynchronous=False)
            reader.close()
        assert committed(broker.bootstrap, "rotten") == 1005
        broker.stop()
        stored = (1005).to_bytes(8, "big")
        paths = Path(broker.data_dir).glob(f"__consumer_offsets-*/{SEGMENT}")
        [path] = [one for one in paths if b"rotten" in one.read_bytes()]
        flip(path, path.read_bytes().index(stored, path.read_bytes().index(b"rotten")) + 6, 1)
        broker.start()
        until(lambda: told(caplog, f"partition {path.parent.name} is offline") == 1)
        assert committed(broker.bootstrap, "rotten") is None
        assert committed(broker.bootstrap, "sound") == 1005


class Replicas:
    """The files of `t-0`, of each broker."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def path(self, broker_id: int) -> Path:
        return Path(self._cluster.data_dir, f"broker-{broker_id}", "t-0", SEGMENT)

    def are_equal(self) -> bool:
        cluster = self._cluster
        if cluster.in_sync("t") != {1, 2, 3}:
            return False
        try:
            return len({self.path(each).read_bytes() for each in (1, 2, 3)}) == 1
        except FileNotFoundError:
            return False  # it is just being copied anew

    def stray(self, broker_id: int) -> list[Path]:
        return list(self.path(broker_id).parent.parent.glob("t-0.*-stray"))


def filled(cluster: Cluster) -> Replicas:
    create(cluster.bootstrap, "t", replicas=3)
    replicas = Replicas(cluster)
    until(lambda: cluster.in_sync("t") == {1, 2, 3})
    produce(cluster.bootstrap, "t", range(50))
    until(replicas.are_equal)
    return replicas


def follower(cluster: Cluster) -> int:
    return next(each for each in (1, 2, 3) if each != cluster.leader("t"))


@pytest.mark.parametrize("chosen", [Cluster.leader, lambda cluster, topic: follower(cluster)])
def test_in_a_cluster_others_lead_and_it_is_copied_anew(
    chosen: Callable[[Cluster, str], int], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), Cluster(3, SETTINGS) as cluster:
        replicas = filled(cluster)
        led = cluster.leader("t")
        rotten = chosen(cluster, "t")
        content = replicas.path(rotten).read_bytes()
        flip(replicas.path(rotten), len(content) // 2)
        until(lambda: bool(replicas.stray(rotten)))
        produce(cluster.bootstrap, "t", range(50, 100))
        until(replicas.are_equal)
        if rotten == led:
            assert cluster.leader("t") != led
        assert consume(cluster.bootstrap, "t", 100) == list(range(100))
        assert replicas.path(rotten).read_bytes().startswith(content)
        [aside] = replicas.stray(rotten)
        kept = (aside / SEGMENT).read_bytes()
        assert kept[: len(content)] != content, "what was found is there to be looked at"
        assert (aside / NAME).exists()
        assert not replicas.path(rotten).with_name(NAME).exists()
        assert told(caplog, "partition t-0 is offline") == 1


def test_a_log_that_starts_within_a_batch_can_be_copied_anew() -> None:
    with Cluster(3, SETTINGS) as cluster:
        create(cluster.bootstrap, "t", replicas=3)
        replicas = Replicas(cluster)
        until(lambda: cluster.in_sync("t") == {1, 2, 3})
        together = {"bootstrap.servers": cluster.bootstrap, "linger.ms": 500, "log_level": 0}
        producer = Producer(together)
        for number in range(10):
            producer.produce("t", f"record {number:05d}".encode(), partition=0)
        assert producer.flush(60) == 0
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        admin.delete_records([TopicPartition("t", 0, 5)])[TopicPartition("t", 0)].result(60)
        produce(cluster.bootstrap, "t", range(10, 20))
        until(replicas.are_equal)
        rotten = follower(cluster)
        flip(replicas.path(rotten), replicas.path(rotten).stat().st_size // 2)
        until(lambda: bool(replicas.stray(rotten)))
        until(replicas.are_equal)


@pytest.mark.parametrize(
    ("at", "bits"), [(0, 0x40), (7, 0x01), (100, 0x40)], ids=["far", "near", "body"]
)
def test_a_leader_looks_at_what_a_follower_could_not_take(
    at: int, bits: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is looked over here but what a follower asks for again: a base offset that has grown
    by much or by one, which no CRC covers, and a record."""
    with caplog.at_level(logging.WARNING), Cluster(3, NOT_BY_ITSELF) as cluster:
        replicas = filled(cluster)
        led, empty = cluster.leader("t"), follower(cluster)
        cluster.kill(empty)
        until(lambda: empty not in cluster.in_sync("t"))
        content = replicas.path(led).read_bytes()
        flip(replicas.path(led), len(content) // 50 * 24 + at, bits)
        shutil.rmtree(replicas.path(empty).parent)
        cluster.start(empty)
        until(lambda: cluster.leader("t") not in (led, -1))
        until(replicas.are_equal)
        assert replicas.path(empty).read_bytes().startswith(content)
        assert consume(cluster.bootstrap, "t", 50) == list(range(50))
        assert told(caplog, "the leader sent") == 1
        assert told(caplog, "partition t-0 is offline") == 1
