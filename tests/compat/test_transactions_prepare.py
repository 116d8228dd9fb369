"""Goal: a transaction can be prepared, and then waits for whoever knows it; ids used once are
forgotten everywhere.
Method: raw connections to a broker inside this process, whose clock can be moved; no codec of
Ottla. (Apache Kafka 4.3 serves none of this: KIP-939 is not finished there.)
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from ottla.client import Admin
from ottla.testing import Broker
from tests.compat import confluent
from tests.compat.group_wire import schema
from tests.compat.nodes import wait_until
from tests.compat.transaction_wire import TransactionWire
from tests.patience import SECONDS_MAX


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def topic(broker: Broker) -> str:
    return confluent.create_topic(broker.bootstrap)


def committed(broker: Broker, topic: str) -> list[bytes]:
    read = confluent.read(broker.bootstrap, topic, settings={"isolation.level": "read_committed"})
    return [value for message in read if (value := message.value()) is not None]


def begin(broker: Broker, topic: str, *values: bytes, version: int = 12) -> TransactionWire:
    wire = TransactionWire(broker.bootstrap).ready()
    if version < 12:
        assert wire.add(topic, 0) == [0]
    assert wire.write(topic, 0, *values, version=version) == 0
    return wire


def test_prepared_fenced_and_ended_by_another_client(broker: Broker, topic: str) -> None:
    for version in (11, 12):
        with begin(broker, topic, b"%d" % version, version=version) as producer:
            writer = {"producer_id": producer.producer_id, "producer_epoch": producer.epoch}
            assert producer.prepare() == 0
            assert producer.kept == (writer["producer_id"], writer["producer_epoch"])
            # Nothing more gets into it, neither from its writer nor from who may end it.
            assert producer.write(topic, 1, b"late", version=version, **writer) == 47
            assert producer.write(topic, 1, b"late", version=version) == 48
            assert producer.add(topic, 0) == [48]
            assert producer.add_offsets("group", **writer) == 90
            assert producer.prepare(**writer) == 0
            owner = producer.owner()
        with TransactionWire(broker.bootstrap, owner["transactional_id"]) as other:
            assert other.end(True, 5, take=False, **writer) == 90
            assert other.end(True, 5, take=False, **owner) == 0
            other.end_when_ready(True, 5, take=False, **owner)
            assert other.end(False, 5, take=False, **owner) == 48
    assert committed(broker, topic) == [b"11", b"12"]


def test_prepared_it_outlives_its_time_out_and_the_broker(broker: Broker, topic: str) -> None:
    with begin(broker, topic, b"prepared") as prepared, begin(broker, topic, b"dead") as dead:
        assert prepared.prepare() == 0
        broker.advance(days=2)
        wait_until(lambda: dead.state() == "CompleteAbort", SECONDS_MAX, "the other is aborted")
        assert prepared.state() == "Ongoing"
        owner = prepared.owner()
        assert dead.prepare() == 90
    broker.restart()
    broker.advance(days=2)
    with TransactionWire(broker.bootstrap, owner["transactional_id"]) as other:
        other.ready_again()
        other.producer_id = owner["producer_id"]
        assert other.state() == "Ongoing"
        # After a restart the partition asks again, and is told that nothing may be written.
        writer = {**owner, "producer_epoch": owner["producer_epoch"] - 1}
        assert other.write(topic, 1, b"late", version=12, **writer) == 47
        assert other.finish(True, **owner) == 0
    assert committed(broker, topic) == [b"prepared"]


def test_what_nobody_decides_is_aborted_by_a_person(broker: Broker, topic: str) -> None:
    with (
        begin(broker, topic, b"abandoned") as driver,
        Admin(bootstrap_servers=broker.bootstrap) as admin,
    ):
        assert driver.prepare() == 0
        assert admin.abort_transaction(driver.name) is True
        assert driver.end(True, 5) == 90

        def is_aborted() -> bool:
            return admin.describe_transactions([driver.name])[0].state == "CompleteAbort"

        wait_until(is_aborted, SECONDS_MAX, "its markers are written")
        with begin(broker, topic, b"next") as following:
            assert following.finish(True) == 0
    assert committed(broker, topic) == [b"next"]


def test_two_phase_commit_is_refused_where_it_is_not_allowed(broker: Broker) -> None:
    with TransactionWire(broker.bootstrap).ready() as wire:
        assert wire.init(6, enable2_pc=True) == 53
        assert wire.init(6, enable2_pc=True, keep_prepared_txn=True) == 53
        assert wire.init(6) == 0


def test_what_was_kept_is_aborted_by_a_producer_that_keeps_nothing() -> None:
    """As KIP-939 says: by a stock client without two-phase commit, or by fenceProducers."""
    with Broker({"transaction.two.phase.commit.enable": True}) as broker:
        topic = confluent.create_topic(broker.bootstrap)
        with TransactionWire(broker.bootstrap).ready() as crashed:
            assert crashed.init(6, timeout_ms=-1, enable2_pc=True) == 0
            assert crashed.write(topic, 0, b"abandoned", version=12) == 0
            assert crashed.init(6, enable2_pc=True, keep_prepared_txn=True) == 0
            owner = crashed.owner()
        with TransactionWire(broker.bootstrap, owner["transactional_id"]) as stock:
            stock.ready_again()
            assert stock.init_again() == 0
            assert stock.end(True, 5, take=False, **owner) == 90
            assert stock.write(topic, 0, b"next", version=12) == 0
            assert stock.finish(True) == 0
        assert committed(broker, topic) == [b"next"]


def test_a_producer_of_kip_939_finishes_after_a_crash() -> None:
    with Broker({"transaction.two.phase.commit.enable": True}) as broker:
        topic = confluent.create_topic(broker.bootstrap)
        with TransactionWire(broker.bootstrap).ready() as crashed:
            assert crashed.init(6, timeout_ms=-1, enable2_pc=True) == 0
            assert crashed.write(topic, 0, b"kept", version=12) == 0
            name, writer = crashed.name, (crashed.producer_id, crashed.epoch)
        broker.advance(days=20)
        broker.restart()
        with TransactionWire(broker.bootstrap, name) as again:
            again.ready_again()
            assert again.init(6, enable2_pc=True, keep_prepared_txn=True) == 0
            assert again.kept == writer
            assert again.end(True, 5, take=False) == 0
            again.end_when_ready(True, 5)
            assert again.write(topic, 0, b"the next", version=12) == 0
            assert again.finish(True) == 0
        assert committed(broker, topic) == [b"kept", b"the next"]


def test_an_id_that_is_used_once_is_forgotten_everywhere(broker: Broker, topic: str) -> None:
    with begin(broker, topic, b"once") as producer:
        assert producer.forget(True) == 0
        wait_until(lambda: producer.forget(True) == 49, SECONDS_MAX, "the id is forgotten")
        assert producer.list().transaction_states == ()
        assert producer.write(topic, 1, b"late", version=12) == 49
        assert producer.write(topic, 1, b"late", version=11) == 49
        assert producer.end(False, 5) == 49
        part = schema("describe_producers", 0)
        asked = part.TopicRequest(name=topic, partition_indexes=(0,))
        (told,) = producer.call(part.DescribeProducersRequest(topics=(asked,))).topics
        assert told.partitions[0].active_producers == ()
    assert committed(broker, topic) == [b"once"]
    broker.restart()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    place = TopicPartition(topic, 0)
    latest = admin.list_offsets(
        {place: OffsetSpec.latest()}, isolation_level=IsolationLevel.READ_COMMITTED
    )
    assert latest[place].result(SECONDS_MAX).offset == 2
