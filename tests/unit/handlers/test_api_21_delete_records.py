"""Goal: DeleteRecords moves the log start as Kafka 4.3.1 does, and refuses in the same order.
Method: what a running Kafka answered, in every version.
"""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.errors import StorageError
from ottla.handlers import api_21_delete_records as module
from ottla.log.log_config import LogConfig
from tests.unit.handlers.read_fakes import (
    FakeLog,
    FakeServices,
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
    partition = a_partition(log)
    for name, value in changes.items():
        setattr(partition, name, value)
    return FakeServices(
        an_image(*map(a_topic, ("t1", "compacted", "both", "__consumer_offsets"))),
        partition,
        a_partition(compacted, "compacted"),
        a_partition(both, "both"),
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
        ("__consumer_offsets", 0, 0),
        ("__transaction_state", 0, 0),
        ("a/b", 0, 0),
    ]
    assert delete(a_service(), *asked, version=version) == {
        "t1": {0: (0, 0), 9: (3, -1), -1: (3, -1)},
        "nope": {0: (3, -1)},
        "compacted": {0: (44, -1)},
        "both": {0: (0, 0)},
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
