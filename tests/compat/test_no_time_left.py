"""Goal: a request to the controller whose time is over when it comes changes nothing, as in Kafka.
Method: raw frames with a time-out of 0 and less; each item is told REQUEST_TIMED_OUT.
"""

from __future__ import annotations

import uuid
from datetime import timedelta
from importlib import import_module
from typing import Any

import pytest

from tests.compat.confluent import admin_client, create_topic, new_name, topic_exists
from tests.compat.wire import Wire
from tests.patience import SECONDS_MAX

REQUEST_TIMED_OUT = 7
INVALID_REQUEST = 42
PREFERRED = 0

no_time = pytest.mark.parametrize("timeout_ms", [0, -1])


def schema(name: str, version: int) -> Any:
    return import_module(f"kio.schema.{name}.v{version}.request")


def asked(bootstrap: str, request: Any) -> Any:
    with Wire(bootstrap) as wire:
        return wire.call(request)


def create(bootstrap: str, names: list[str], timeout_ms: int, **options: bool) -> list[int]:
    of = schema("create_topics", 7)
    topics = [
        of.CreatableTopic(
            name=name, num_partitions=1, replication_factor=1, assignments=(), configs=()
        )
        for name in names
    ]
    timeout = timedelta(milliseconds=timeout_ms)
    request = of.CreateTopicsRequest(topics=tuple(topics), timeout=timeout, **options)
    return [int(topic.error_code) for topic in asked(bootstrap, request).topics]


@no_time
def test_no_topic_is_made(bootstrap: str, timeout_ms: int) -> None:
    name, twice = new_name(), new_name()
    late = [REQUEST_TIMED_OUT]
    assert create(bootstrap, [name], timeout_ms) == late
    assert create(bootstrap, [name], timeout_ms, validate_only=True) == late
    assert create(bootstrap, ["no/name", twice, twice], timeout_ms) == late * 3
    assert create(bootstrap, [twice, twice], timeout_ms) == [INVALID_REQUEST], "asks for nothing"
    assert create(bootstrap, [], timeout_ms) == []
    assert not topic_exists(bootstrap, name)


@no_time
def test_no_topic_is_deleted(bootstrap: str, timeout_ms: int) -> None:
    topic = create_topic(bootstrap)
    of = schema("delete_topics", 6)

    def delete(*selected: tuple[str | None, uuid.UUID | None]) -> list[int]:
        topics = [of.DeleteTopicState(name=name, topic_id=one) for name, one in selected]
        timeout = timedelta(milliseconds=timeout_ms)
        request = of.DeleteTopicsRequest(topics=tuple(topics), timeout=timeout)
        return [int(told.error_code) for told in asked(bootstrap, request).responses]

    assert delete((topic, None)) == [REQUEST_TIMED_OUT]
    assert delete((topic, None), (topic, uuid.uuid4())) == [REQUEST_TIMED_OUT] * 2
    assert delete((topic, uuid.uuid4())) == [INVALID_REQUEST]
    assert topic_exists(bootstrap, topic)


@no_time
def test_no_partition_is_added(bootstrap: str, timeout_ms: int) -> None:
    topic = create_topic(bootstrap)
    of = schema("create_partitions", 3)
    request = of.CreatePartitionsRequest(
        topics=(of.CreatePartitionsTopic(name=topic, count=3, assignments=None),),
        timeout=timedelta(milliseconds=timeout_ms),
        validate_only=False,
    )
    (told,) = asked(bootstrap, request).results
    assert int(told.error_code) == REQUEST_TIMED_OUT
    known = admin_client(bootstrap).list_topics(topic, timeout=SECONDS_MAX).topics[topic]
    assert len(known.partitions) == 1


@no_time
@pytest.mark.parametrize("every_partition", [False, True])
def test_nobody_is_elected(bootstrap: str, timeout_ms: int, every_partition: bool) -> None:
    of = schema("elect_leaders", 2)
    wanted = (of.TopicPartitions(topic=create_topic(bootstrap), partitions=(0,)),)
    request = of.ElectLeadersRequest(
        election_type=PREFERRED,
        topic_partitions=None if every_partition else wanted,
        timeout=timedelta(milliseconds=timeout_ms),
    )
    told = asked(bootstrap, request)
    codes = [
        int(one.error_code)
        for each in told.replica_election_results
        for one in each.partition_result
    ]
    assert int(told.error_code) == REQUEST_TIMED_OUT
    assert codes == [] if every_partition else [REQUEST_TIMED_OUT]


@no_time
def test_nothing_is_moved(bootstrap: str, timeout_ms: int) -> None:
    of = schema("alter_partition_reassignments", 0)
    part = of.ReassignablePartition(partition_index=0, replicas=(1,))
    request = of.AlterPartitionReassignmentsRequest(
        timeout=timedelta(milliseconds=timeout_ms),
        topics=(of.ReassignableTopic(name=create_topic(bootstrap), partitions=(part,)),),
    )
    told = asked(bootstrap, request)
    assert int(told.error_code) == REQUEST_TIMED_OUT
    assert [int(one.error_code) for one in told.responses[0].partitions] == [REQUEST_TIMED_OUT]
