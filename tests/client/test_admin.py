"""The admin client on Ottla and on Apache Kafka: what the command line asks, what is refused."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from ottla.client import Admin, NewTopic, Producer
from ottla.client.admin_values import EARLIEST, LATEST, MAX_TIMESTAMP
from ottla.client.aio import AsyncAdmin
from ottla.client.errors import BrokerError, ConfigError, FencedError, UnknownTopicError
from ottla.records.batch_header import BASE_OFFSET, read_header
from tests.client.admin_calls import create_topic, is_there
from tests.compat.nodes import wait_until

PATIENCE_S = 60


@pytest.fixture
def admin(cluster: str) -> Iterator[Admin]:
    with Admin(bootstrap_servers=cluster) as client:
        yield client


def test_topics_come_grow_and_go(cluster: str, admin: Admin, topic: str) -> None:
    create_topic(cluster, topic, 2, {"retention.ms": "1000"})
    outcome = admin.create_topics([NewTopic(topic, 1), NewTopic(f"{topic}-b", assignment=None)])
    assert isinstance(outcome[topic], BrokerError)
    assert outcome[f"{topic}-b"] is None
    wait_until(lambda: is_there(admin, f"{topic}-b", 1), PATIENCE_S, "the second one")
    admin.create_partitions(topic, 3)
    wait_until(lambda: is_there(admin, topic, 3), PATIENCE_S, "three partitions")
    (described,) = admin.describe_topics([topic])
    assert described.partitions[0].leader in described.partitions[0].replicas
    with pytest.raises(BrokerError, match="INVALID_PARTITIONS"):
        admin.create_partitions(topic, 1)
    admin.delete_topic(topic)
    wait_until(lambda: is_there(admin, topic, 0), PATIENCE_S, "its end")
    with pytest.raises(UnknownTopicError):
        admin.describe_topics([topic])
    with pytest.raises(UnknownTopicError):
        admin.delete_topic(topic)
    with pytest.raises(BrokerError, match="INVALID_TOPIC"):
        admin.create_topic("no/such")


def test_configs(cluster: str, admin: Admin, topic: str) -> None:
    create_topic(cluster, topic, 1, {"retention.ms": "1000"})
    found = {one.name: one for one in admin.describe_configs("topic", topic)}
    assert (found["retention.ms"].value, found["retention.ms"].is_default) == ("1000", False)
    assert found["cleanup.policy"].source == "DEFAULT_CONFIG"
    admin.alter_configs("topic", topic, {"cleanup.policy": "compact"}, ["retention.ms"])
    admin.alter_configs("topic", topic, appends={"cleanup.policy": "delete"})

    def policy() -> str | None:
        return admin.describe_configs("topic", topic, ["cleanup.policy"])[0].value

    # Apache Kafka answers the change before its brokers have heard of it.
    wait_until(lambda: policy() == "compact,delete", PATIENCE_S, "both policies")
    with pytest.raises(BrokerError, match="INVALID_CONFIG"):
        admin.alter_configs("topic", topic, {"cleanup.policy": "nonsense"})
    with pytest.raises(ConfigError, match="no settings of"):
        admin.describe_configs("house", topic)
    node = admin.describe_cluster().brokers[0].node_id
    assert "log.retention.ms" in {one.name for one in admin.describe_configs("broker", str(node))}
    with pytest.raises(ConfigError, match="number"):
        admin.describe_configs("broker", "first")


def test_offsets_and_deletion_of_records(cluster: str, admin: Admin, topic: str) -> None:
    create_topic(cluster, topic, 2)
    with Producer(bootstrap_servers=cluster) as producer:
        now_ms = int(time.time() * 1000)
        for number in range(10):
            producer.send(topic, b"v", partition=1, timestamp_ms=now_ms + number)
    place = (topic, 1)
    found = admin.list_offsets({place: now_ms + 4, (topic, 0): LATEST}, committed=True)
    assert {at: one.offset for at, one in found.items() if one} == {place: 4, (topic, 0): 0}
    assert admin.list_offsets({place: now_ms + 100}) == {place: None}
    newest = admin.list_offsets({place: MAX_TIMESTAMP})[place]
    assert newest is not None
    assert (newest.offset, newest.timestamp_ms) == (9, now_ms + 9)
    assert admin.delete_records({place: 6}) == {place: 6}
    earliest = admin.list_offsets({place: EARLIEST})[place]
    assert earliest is not None
    assert earliest.offset == 6
    with pytest.raises(BrokerError, match="OFFSET_OUT_OF_RANGE"):
        admin.delete_records({place: 100})
    with pytest.raises(UnknownTopicError, match="partitions 0 to 1"):
        admin.list_offsets({(topic, 2): LATEST})


def test_groups(cluster: str, admin: Admin, topic: str) -> None:
    create_topic(cluster, topic, 2)
    group = f"group of {topic}"
    assert admin.describe_groups([group])[0].state == "Dead"
    assert admin.alter_group_offsets(group, {(topic, 0): 5, (topic, 1): 7}) == {
        (topic, 0): None,
        (topic, 1): None,
    }
    assert group in {one.group_id for one in admin.list_groups()}
    offsets = admin.list_group_offsets(group, require_stable=True)
    assert {place: one.offset for place, one in offsets.items()} == {(topic, 0): 5, (topic, 1): 7}
    assert list(admin.list_group_offsets(group, [(topic, 1)])) == [(topic, 1)]
    assert admin.list_offsets_of_groups([group, f"no {group}"]) == {
        group: offsets,
        f"no {group}": {},
    }
    assert admin.delete_group_offsets(group, [(topic, 0)]) == {(topic, 0): None}
    assert list(admin.list_group_offsets(group)) == [(topic, 1)]
    (described,) = admin.describe_groups([group])
    assert (described.state, described.kind, described.members) == ("Empty", "classic", [])
    assert admin.delete_groups([group]) == {group: None}
    assert isinstance(admin.delete_groups([group])[group], BrokerError)
    assert admin.list_group_offsets(group) == {}


def test_transactions(cluster: str, admin: Admin, topic: str) -> None:
    create_topic(cluster, topic, 1)
    with Producer(bootstrap_servers=cluster, transactional_id=topic) as producer:
        producer.begin_transaction()
        producer.send(topic, b"v").result(PATIENCE_S)
        (described,) = admin.describe_transactions([topic])
        assert (described.state, described.partitions) == ("Ongoing", [(topic, 0)])
        listed = admin.list_transactions(["Ongoing"])
        assert topic in {one.transactional_id for one in listed}
        (writer,) = admin.describe_producers([(topic, 0)])[topic, 0]
        assert (writer.producer_id, writer.transaction_start_offset) == (described.producer_id, 0)
        producer.abort_transaction()
    with pytest.raises(BrokerError, match="TRANSACTIONAL_ID_NOT_FOUND"):
        admin.describe_transactions([f"no {topic}"])


def test_batches_are_given_as_they_are_held(cluster: str, admin: Admin, topic: str) -> None:
    create_topic(cluster, topic, 1)
    with Producer(bootstrap_servers=cluster, transactional_id=topic) as producer:
        producer.begin_transaction()
        producer.send(topic, b"v").result(PATIENCE_S)
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send(topic, b"w").result(PATIENCE_S)
        held = admin.fetch_batches((topic, 0), 0)
        assert (held.log_start_offset, held.last_stable_offset, held.high_watermark) == (0, 2, 3)
        assert [read_header(one)[BASE_OFFSET] for one in held.batches] == [0, 1, 2]
        assert held.aborted == []
        seen = admin.fetch_batches((topic, 0), 0, committed=True)
        assert [first for _, first in seen.aborted] == [0]
        assert len(seen.batches) == 2
        (one,) = admin.fetch_batches((topic, 0), 1, max_bytes=1).batches
        assert read_header(one)[BASE_OFFSET] == 1
        producer.abort_transaction()
    with pytest.raises(BrokerError, match="OFFSET_OUT_OF_RANGE"):
        admin.fetch_batches((topic, 0), 5)


def test_an_open_transaction_is_aborted_by_its_id(cluster: str, admin: Admin, topic: str) -> None:
    create_topic(cluster, topic, 1)
    with Producer(bootstrap_servers=cluster, transactional_id=topic) as producer:
        producer.begin_transaction()
        producer.send(topic, b"v").result(PATIENCE_S)
        assert admin.abort_transaction(topic) is True
        assert admin.abort_transaction(topic) is False  # there is nothing left to abort
        with pytest.raises(FencedError):
            producer.commit_transaction()
        producer.close(0)
    assert [first for _, first in admin.fetch_batches((topic, 0), 0, committed=True).aborted] == [0]
    with pytest.raises(BrokerError, match="TRANSACTIONAL_ID_NOT_FOUND"):
        admin.abort_transaction(f"no {topic}")


def test_a_transaction_that_hangs_is_ended(cluster: str, admin: Admin, topic: str) -> None:
    create_topic(cluster, topic, 1)
    with Producer(bootstrap_servers=cluster, transactional_id=topic) as producer:
        producer.begin_transaction()
        producer.send(topic, b"v").result(PATIENCE_S)
        (writer,) = admin.describe_producers([(topic, 0)])[topic, 0]
        admin.abort_hanging_transaction(
            (topic, 0), writer.producer_id, writer.producer_epoch, writer.coordinator_epoch
        )
        (writer,) = admin.describe_producers([(topic, 0)])[topic, 0]
        assert writer.transaction_start_offset is None
        producer.close(0)


def test_the_cluster(cluster: str, admin: Admin, topic: str) -> None:
    create_topic(cluster, topic, 1)
    described = admin.describe_cluster()
    nodes = {broker.node_id for broker in described.brokers}
    assert described.controller_id in nodes

    def is_kept() -> bool:
        found = admin.describe_log_dirs()
        assert set(found) == nodes
        return (topic, 0) in {
            (one.topic, one.partition)
            for directories in found.values()
            for directory in directories
            for one in directory.replicas
        }

    wait_until(is_kept, PATIENCE_S, "a directory of the topic")
    assert admin.list_reassignments() == {}
    elected = admin.elect_leaders([(topic, 0)])[topic, 0]
    assert elected is not None
    assert elected.name == "ELECTION_NOT_NEEDED"
    moved = admin.alter_reassignments({(topic, 0): None})[topic, 0]
    assert moved is not None
    assert moved.name == "NO_REASSIGNMENT_IN_PROGRESS"


def test_asyncio(cluster: str, topic: str) -> None:
    async def work() -> None:
        async with AsyncAdmin(bootstrap_servers=cluster) as admin:
            await admin.create_topic(topic, partitions=2)
            while topic not in {one.name for one in await admin.list_topics()}:
                await asyncio.sleep(0.02)
            described, whole = await asyncio.gather(
                admin.describe_topics([topic]), admin.describe_cluster()
            )
            assert len(described[0].partitions) == 2
            assert whole.controller_id in {broker.node_id for broker in whole.brokers}
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(work())
