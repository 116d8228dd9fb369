"""Goal: DeleteRecords moves the log start as Kafka 4.3.1 does, and refuses in the same order.
Method: what a running Kafka answered, in every version.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.base.deferred import Deferred
from ottla.base.errors import StorageError
from ottla.handlers import api_21_delete_records as module
from ottla.handlers.context import Context, Services
from ottla.log.log_config import LogConfig
from ottla.replication.leader_progress import Pulse
from tests.unit.handlers.cluster_fakes import ClusterBroker
from tests.unit.handlers.read_fakes import (
    FakeLog,
    FakeServices,
    a_broker,
    a_partition,
    a_topic,
    an_image,
    ask,
    versions_of,
)

RECORDS = [(1, 0)] * 5


def a_service(**changes: Any) -> FakeServices:
    log = FakeLog(records=list(RECORDS))
    compacted = FakeLog(config=LogConfig(cleanup_policy=frozenset({"compact"})))
    both = FakeLog(config=LogConfig(cleanup_policy=frozenset({"compact", "delete"})))
    kept = FakeLog(config=LogConfig(cleanup_policy=frozenset()))
    partition = a_partition(log)
    for name, value in changes.items():
        setattr(partition, name, value)
    return FakeServices(
        an_image(*map(a_topic, ("t1", "compacted", "both", "kept", "__consumer_offsets"))),
        partition,
        a_partition(compacted, "compacted"),
        a_partition(both, "both"),
        a_partition(kept, "kept"),
        a_partition(FakeLog(), "__consumer_offsets"),
    )


def delete(
    services: FakeServices, *asked: tuple[str, int, int], version: int = 2
) -> dict[str, dict[int, tuple[int, int]]]:
    """(error, low watermark) by topic and partition, of (topic, partition, offset)."""
    topics = [
        {"name": name, "partitions": [{"partition_index": index, "offset": offset}]}
        for name, index, offset in asked
    ]
    answer = ask(module, services, version, topics=topics, timeout_ms=1000)
    assert answer["throttle_time_ms"] == 0
    return {
        topic["name"]: {
            each["partition_index"]: (each["error_code"], each["low_watermark"])
            for each in topic["partitions"]
        }
        for topic in answer["topics"]
    }


@pytest.mark.parametrize("version", versions_of(module))
def test_each_partition_has_its_own_answer(version: int) -> None:
    asked = [
        ("t1", 0, 0),
        ("t1", 9, 0),
        ("t1", -1, 0),
        ("nope", 0, 0),
        ("compacted", 0, 0),
        ("both", 0, 0),
        ("kept", 0, 0),
        ("__consumer_offsets", 0, 0),
        ("__transaction_state", 0, 0),
        ("a/b", 0, 0),
    ]
    assert delete(a_service(), *asked, version=version) == {
        "t1": {0: (0, 0), 9: (3, -1), -1: (3, -1)},
        "nope": {0: (3, -1)},
        "compacted": {0: (44, -1)},
        "both": {0: (0, 0)},
        "kept": {0: (0, 0)},
        "__consumer_offsets": {0: (17, -1)},
        "__transaction_state": {0: (3, -1)},
        "a/b": {0: (3, -1)},
    }


def test_offsets() -> None:
    services = a_service()
    steps = [(2, (0, 2)), (1, (0, 2)), (-2, (1, -1)), (6, (1, -1)), (5, (0, 5)), (-1, (0, 5))]
    for offset, expected in steps:
        assert delete(services, ("t1", 0, offset))["t1"][0] == expected


def test_minus_one_is_the_watermark_not_the_end() -> None:
    assert delete(a_service(high_watermark=3), ("t1", 0, -1))["t1"][0] == (0, 3)
    assert delete(a_service(high_watermark=3), ("t1", 0, 4))["t1"][0] == (1, -1)


def test_a_policy_is_refused_before_an_offset() -> None:
    assert delete(a_service(), ("compacted", 0, 7))["compacted"][0] == (44, -1)
    assert delete(a_service(), ("both", 0, 7))["both"][0] == (1, -1)


def test_the_last_mention_counts_and_empty_topics_are_left_out() -> None:
    assert delete(a_service(), ("t1", 0, 4), ("both", 0, 0), ("t1", 0, 1)) == {
        "t1": {0: (0, 1)},
        "both": {0: (0, 0)},
    }
    answer = ask(module, a_service(), 2, topics=[{"name": "t1", "partitions": []}], timeout_ms=1000)
    assert answer["topics"] == []


def test_only_the_leader_deletes() -> None:
    services = a_service(is_leader=False)
    assert delete(services, ("t1", 0, 1), ("t1", 1, 1))["t1"] == {0: (6, -1), 1: (6, -1)}
    assert delete(a_service(log=None), ("t1", 0, 1))["t1"][0] == (56, -1)


def test_a_disk_that_fails_goes_offline() -> None:
    failure = StorageError("/data/one/t1-0", "write")
    services = a_service()
    services.partitions.table["t1", 0] = a_partition(
        FakeLog(records=list(RECORDS), failure=failure)
    )
    assert delete(services, ("t1", 0, 1))["t1"][0] == (56, -1)
    assert services.failures == [failure]


def delete_in_cluster(broker: ClusterBroker, offset: int) -> Any:
    request = SimpleNamespace(
        topics=[
            SimpleNamespace(
                name="topic", partitions=[SimpleNamespace(partition_index=0, offset=offset)]
            )
        ],
        timeout_ms=1000,
    )
    context = Context(cast(Services, broker.services), 2, "x", "PLAINTEXT", 1)
    return module.handle(context, request)


def the_one(answer: Any) -> tuple[int, int]:
    fields = answer.result() if isinstance(answer, Deferred) else answer
    [partition] = fields["topics"][0]["partitions"]
    return partition["error_code"], partition["low_watermark"]


def fetched_by(broker: ClusterBroker, replica: int, log_start: int) -> None:
    broker.replica.partition.on_follower_fetch(
        replica, 70, 3, log_start, Pulse(0), lambda broker_id, epoch: True
    )


@pytest.fixture
def leading() -> ClusterBroker:
    broker = ClusterBroker()
    broker.replica.produce(3)
    for replica in (2, 3):
        fetched_by(broker, replica, 0)
    return broker


def test_it_waits_for_every_replica_that_lives(leading: ClusterBroker) -> None:
    waiting = delete_in_cluster(leading, 2)
    fetched_by(leading, 2, 2)
    assert not waiting.done
    fetched_by(leading, 3, 2)
    assert the_one(waiting) == (0, 2)


def test_it_does_not_wait_for_the_dead(leading: ClusterBroker) -> None:
    brokers = {**leading.image.brokers, 3: a_broker(3, fenced=True)}
    leading.services.image = replace(leading.image, brokers=brokers)
    waiting = delete_in_cluster(leading, 2)
    fetched_by(leading, 2, 2)
    assert the_one(waiting) == (0, 2)


def test_it_waits_no_longer_than_it_said(leading: ClusterBroker) -> None:
    waiting = delete_in_cluster(leading, 2)
    leading.time.advance(1000)
    assert the_one(waiting) == (7, 0), "how far it has got, as Kafka tells it"


def test_a_lost_leadership_ends_the_wait(leading: ClusterBroker) -> None:
    waiting = delete_in_cluster(leading, 2)
    leading.become(2, 6, 1)
    assert the_one(waiting) == (6, -1)


def ask_one(services: FakeServices, timeout_ms: int = 0) -> Any:
    request = SimpleNamespace(
        topics=[
            SimpleNamespace(name="t1", partitions=[SimpleNamespace(partition_index=0, offset=2)])
        ],
        timeout_ms=timeout_ms,
    )
    return module.handle(Context(cast(Services, services), 2, "x", "PLAINTEXT", 1), request)


def test_it_is_not_answered_before_the_log_start_is_on_the_disk() -> None:
    """A kill between the answer and the checkpoint, up to a minute later, once brought back what
    was deleted."""
    services = a_service()
    services.saving = Deferred()
    waiting = ask_one(services)
    assert not waiting.done
    services.saving.resolve(None)
    assert the_one(waiting) == (0, 2)


def test_a_disk_that_does_not_take_the_log_start() -> None:
    services = a_service()
    services.saving = Deferred()
    waiting = ask_one(services)
    services.saving.fail(StorageError("/data/one/log-start-offset-checkpoint", "write"))
    assert the_one(waiting) == (56, -1)


def test_the_time_is_for_the_others_not_for_the_own_disk(leading: ClusterBroker) -> None:
    saving: Deferred[None] = Deferred()
    leading.services.save_log_starts = lambda log_dir: saving
    waiting = delete_in_cluster(leading, 2)
    for replica in (2, 3):
        fetched_by(leading, replica, 2)
    leading.time.advance(1000)
    assert not waiting.done
    saving.resolve(None)
    assert the_one(waiting) == (0, 2)
