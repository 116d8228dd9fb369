"""Goal: groups and transactions work across brokers, and move with the partitions they are kept in.
Method: three brokers in this process, clients of confluent-kafka; partitions and coordinators are
spread so that every way between brokers is taken.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.runtime.key_hash import key_hash
from ottla.testing import Cluster
from tests.cluster.waiting import until
from tests.patience import SECONDS_MAX

PARTITIONS = 6
NOT_YET = (
    KafkaError.UNSTABLE_OFFSET_COMMIT,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
)
SETTINGS = {
    # Few, so that a cluster is up soon; more than brokers, so that each leads some.
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.num.partitions": 4,
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3, SETTINGS) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("t", PARTITIONS, 3)])["t"].result(SECONDS_MAX)
        until(lambda: {running.leader("t", one) for one in range(6)} == {1, 2, 3}, "all lead")
        yield running


def client(cluster: Cluster, **settings: Any) -> dict[str, Any]:
    return {"bootstrap.servers": cluster.bootstrap, "log_level": 0, **settings}


def a_producer(cluster: Cluster, name: str) -> Producer:
    producer = Producer(
        client(
            cluster,
            **{
                "transactional.id": name,
                "transaction.timeout.ms": 300_000,
                "message.timeout.ms": 300_000,
                "retry.backoff.ms": 20,
            },
        )
    )
    producer.init_transactions(SECONDS_MAX)
    return producer


def committed_values(cluster: Cluster, prefix: str, count: int) -> list[str]:
    """All values with the prefix that a reader of committed records sees, up to the very end."""
    consumer = Consumer(
        client(
            cluster,
            **{
                "group.id": "reader",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            },
        )
    )
    consumer.assign([TopicPartition("t", index, 0) for index in range(PARTITIONS)])
    values: list[str] = []
    ended: set[int | None] = set()
    deadline = time.monotonic() + SECONDS_MAX
    while len(ended) < PARTITIONS or len(values) < count:
        assert time.monotonic() < deadline, f"{len(values)} of {count} were read"
        message = consumer.poll(0.1)
        if message is None:
            continue
        if message.error() is not None:
            ended.add(message.partition())
            continue
        value = bytes(message.value() or b"").decode()
        if value.startswith(prefix):
            values.append(value)
    consumer.close()
    return values


def coordinator_of(cluster: Cluster, topic: str, key: str) -> int:
    return cluster.leader(topic, key_hash(key) % 4)


def names_for_each_broker(cluster: Cluster, topic: str) -> dict[int, str]:
    names: dict[int, str] = {}
    for number in range(100):
        name = f"id-{number}"
        names.setdefault(coordinator_of(cluster, topic, name), name)
    assert sorted(names) == [1, 2, 3]
    return names


def until_committed(member: Consumer, wanted: TopicPartition) -> None:
    """Markers come after the answer to a commit, and a new coordinator has to load; librdkafka asks
    a few times only. No other offset may be told meanwhile."""

    def is_told() -> bool:
        told = wanted
        try:
            [told] = member.committed([wanted], SECONDS_MAX)
            error = told.error
        except KafkaException as refused:
            error = refused.args[0]
        if error is not None:
            assert error.code() in NOT_YET, error
            return False
        assert told.offset == wanted.offset
        return True

    until(is_told, f"{wanted} is committed")


def test_a_transaction_spans_brokers(cluster: Cluster) -> None:
    a_producer(cluster, "first")  # makes the topic
    for broker_id, name in names_for_each_broker(cluster, "__transaction_state").items():
        producer = a_producer(cluster, name)
        for committed in (True, False, True):
            producer.begin_transaction()
            for index in range(PARTITIONS):
                value = f"{broker_id} {committed} {index}"
                producer.produce("t", value.encode(), partition=index)
            if committed:
                producer.commit_transaction(SECONDS_MAX)
            else:
                # What is still on its way may not overtake the abort, so nothing shall be.
                assert producer.flush(SECONDS_MAX) == 0
                producer.abort_transaction(SECONDS_MAX)
        values = committed_values(cluster, f"{broker_id} ", 2 * PARTITIONS)
        expected = [f"{broker_id} True {index}" for index in range(PARTITIONS)]
        assert sorted(values) == sorted(2 * expected)


def test_offsets_in_a_transaction_are_kept_elsewhere(cluster: Cluster) -> None:
    producer = a_producer(cluster, "offsets")
    group = Consumer(client(cluster, **{"group.id": "made", "enable.auto.commit": False}))
    group.list_topics(timeout=SECONDS_MAX)
    group.subscribe(["t"])
    until(lambda: group.poll(0.1) is not None or bool(group.assignment()), "a member")
    for name in names_for_each_broker(cluster, "__consumer_offsets").values():
        member = Consumer(client(cluster, **{"group.id": name, "enable.auto.commit": False}))
        member.subscribe(["t"])
        until(lambda member=member: bool(member.poll(0.1) or member.assignment()), "a member")  # type: ignore[misc]
        producer.begin_transaction()
        producer.produce("t", b"with offsets", partition=0)
        producer.send_offsets_to_transaction(
            [TopicPartition("t", 1, 7)], member.consumer_group_metadata(), SECONDS_MAX
        )
        producer.commit_transaction(SECONDS_MAX)
        until_committed(member, TopicPartition("t", 1, 7))
        member.close()
    group.close()


def test_a_group_and_a_transaction_survive_their_coordinators(cluster: Cluster) -> None:
    producer = a_producer(cluster, "survivor")
    member = Consumer(client(cluster, **{"group.id": "survivors", "enable.auto.commit": False}))
    member.subscribe(["t"])
    until(lambda: bool(member.poll(0.1) or member.assignment()), "a member")
    member.commit(offsets=[TopicPartition("t", 2, 5)], asynchronous=False)
    producer.begin_transaction()
    for index in range(PARTITIONS):
        producer.produce("t", f"survivor {index}".encode(), partition=index)
    producer.flush(SECONDS_MAX)
    for topic, key in (("__transaction_state", "survivor"), ("__consumer_offsets", "survivors")):
        coordinator = coordinator_of(cluster, topic, key)
        cluster.kill(coordinator)
        until(
            lambda topic=topic, key=key, coordinator=coordinator: (
                coordinator_of(cluster, topic, key)  # type: ignore[misc]
                not in (-1, coordinator)
            ),
            "another coordinator",
        )
        if topic == "__transaction_state":
            producer.commit_transaction(SECONDS_MAX)
        else:
            until_committed(member, TopicPartition("t", 2, 5))
        cluster.start(coordinator)
        until(
            lambda: all(len(cluster.in_sync("t", index)) == 3 for index in range(PARTITIONS)),
            "all in sync",
        )
    assert sorted(committed_values(cluster, "survivor", PARTITIONS)) == [
        f"survivor {index}" for index in range(PARTITIONS)
    ]
    member.close()
