"""Goal: topics page by page, whatever the limit, without a gap and without an end that never comes.
Method: what Kafka 4.3.1 answered to limits and cursors on topics of two partitions.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ottla.handlers import api_75_describe_topic_partitions as module
from ottla.metadata.image import PartitionState
from tests.unit.handlers.read_fakes import (
    FakeServices,
    a_broker,
    a_partition,
    a_topic,
    an_image,
    ask,
    topic_id_of,
)

ONE = PartitionState(1, 0, (1,), (1,))
Page = tuple[list[tuple[int, str, list[int]]], tuple[str, int] | None]


def a_service(**properties: str) -> FakeServices:
    topics = [
        a_topic("t2"),
        a_topic("t1"),
        a_topic("compacted", ONE),
        a_topic("__consumer_offsets"),
    ]
    return FakeServices(an_image(*topics), properties=properties)


def describe(
    names: list[str],
    limit: int = 2000,
    cursor: tuple[str, int] | None = None,
    services: FakeServices | None = None,
) -> dict[str, Any]:
    place = None if cursor is None else {"topic_name": cursor[0], "partition_index": cursor[1]}
    return ask(
        module,
        services or a_service(),
        0,
        topics=[{"name": name} for name in names],
        response_partition_limit=limit,
        cursor=place,
    )


def page(*arguments: Any, **named: Any) -> Page:
    answer = describe(*arguments, **named)
    topics = [
        (
            topic["error_code"],
            topic["name"],
            [each["partition_index"] for each in topic["partitions"]],
        )
        for topic in answer["topics"]
    ]
    cursor = answer["next_cursor"]
    return topics, None if cursor is None else (cursor["topic_name"], cursor["partition_index"])


def test_one_topic_whole() -> None:
    partition = {
        "error_code": 0,
        "leader_id": 1,
        "leader_epoch": 0,
        "replica_nodes": [1],
        "isr_nodes": [1],
        "eligible_leader_replicas": [],
        "last_known_elr": [],
        "offline_replicas": [],
    }
    assert describe(["t1"]) == {
        "throttle_time_ms": 0,
        "topics": [
            {
                "error_code": 0,
                "name": "t1",
                "topic_id": topic_id_of("t1"),
                "is_internal": False,
                "partitions": [{**partition, "partition_index": index} for index in (0, 1)],
                "topic_authorized_operations": 3576,
            }
        ],
        "next_cursor": None,
    }


def test_a_partition_without_leader_shows_who_may_lead() -> None:
    """As Kafka does: nobody is in sync with nobody, and who was is eligible."""
    lost = PartitionState(-1, 4, (2, 3), (2,), eligible=(3,), last_known=(2,))
    services = FakeServices(an_image(a_topic("t", lost), brokers=[a_broker(1), a_broker(3)]))
    (partition,) = describe(["t"], services=services)["topics"][0]["partitions"]
    assert partition == {
        "error_code": 0,
        "partition_index": 0,
        "leader_id": -1,
        "leader_epoch": 4,
        "replica_nodes": [2, 3],
        "isr_nodes": [],
        "eligible_leader_replicas": [2, 3],
        "last_known_elr": [2],
        "offline_replicas": [2],
    }


def test_a_disk_that_has_failed_elsewhere_is_told() -> None:
    topic = a_topic("t", PartitionState(1, 4, (1, 2), (1,)), PartitionState(1, 4, (1, 2), (1, 2)))
    failed = a_broker(2, offline={topic.topic_id: frozenset({0})})
    services = FakeServices(an_image(topic, brokers=[a_broker(1), failed]))
    partitions = describe(["t"], services=services)["topics"][0]["partitions"]
    assert [each["offline_replicas"] for each in partitions] == [[2], []]


def test_at_level_0_of_the_feature_nobody_is_told_as_eligible() -> None:
    """As Kafka 4.3.1 tells it then: who was in sync last still is."""
    lost = PartitionState(-1, 4, (2, 3), (2,), eligible=(3,), last_known=(2,))
    short = PartitionState(3, 4, (2, 3), (3,), eligible=(2,))
    image = an_image(a_topic("t", lost, short), brokers=[a_broker(1), a_broker(3)])
    services = FakeServices(replace(image, features={"metadata.version": 30}))
    told = describe(["t"], services=services)["topics"][0]["partitions"]
    names = ("leader_id", "isr_nodes", "eligible_leader_replicas", "last_known_elr")
    assert [[each[name] for name in names] for each in told] == [
        [-1, [2], [], []],
        [3, [3], [], []],
    ]


def test_who_led_last_is_told_only_while_nobody_leads() -> None:
    led = PartitionState(3, 5, (2, 3), (3,), eligible=(2,), last_known=(2,))
    services = FakeServices(an_image(a_topic("t", led), brokers=[a_broker(1), a_broker(3)]))
    (partition,) = describe(["t"], services=services)["topics"][0]["partitions"]
    assert (partition["isr_nodes"], partition["eligible_leader_replicas"]) == ([3], [2])
    assert partition["last_known_elr"] == []


def test_all_topics_sorted() -> None:
    assert page([]) == (
        [
            (0, "__consumer_offsets", [0, 1]),
            (0, "compacted", [0]),
            (0, "t1", [0, 1]),
            (0, "t2", [0, 1]),
        ],
        None,
    )
    internal = {topic["name"]: topic["is_internal"] for topic in describe([])["topics"]}
    assert [name for name, is_internal in internal.items() if is_internal] == ["__consumer_offsets"]


def test_topics_that_are_not_there() -> None:
    topics, _ = page(["zz", "a/b", "t1", "t1", "nope", "..", ""])
    assert topics == [
        (17, "", []),
        (17, "..", []),
        (17, "a/b", []),
        (3, "nope", []),
        (0, "t1", [0, 1]),
        (3, "zz", []),
    ]
    assert describe(["nope"])["topics"][0]["topic_authorized_operations"] == 3576


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (-1, ([(0, "t1", [0])], ("t1", 1))),
        (0, ([(0, "t1", [0])], ("t1", 1))),
        (1, ([(0, "t1", [0])], ("t1", 1))),
        (2, ([(0, "t1", [0, 1])], ("t2", 0))),
        (3, ([(0, "t1", [0, 1]), (0, "t2", [0])], ("t2", 1))),
        (4, ([(0, "t1", [0, 1]), (0, "t2", [0, 1])], None)),
    ],
)
def test_limits(limit: int, expected: Page) -> None:
    assert page(["t2", "t1"], limit) == expected


def test_the_brokers_limit_holds_for_everybody() -> None:
    services = a_service(**{"max.request.partition.size.limit": "3"})
    assert page(["t2", "t1"], 2000, services=services)[1] == ("t2", 1)


def test_what_can_not_be_described_does_not_use_up_the_limit() -> None:
    names = ["a1", "b1", "t1", "u1", "v1"]
    refused: list[Any] = [(3, "a1", []), (3, "b1", [])]
    assert page(names, 1) == ([*refused, (0, "t1", [0])], ("t1", 1))
    assert page(names, 2) == ([*refused, (0, "t1", [0, 1])], ("u1", 0))
    assert page(names, 3) == ([*refused, (0, "t1", [0, 1]), (3, "u1", []), (3, "v1", [])], None)


@pytest.mark.parametrize(
    ("cursor", "expected"),
    [
        (("t1", 0), [(0, "t1", [0, 1]), (0, "t2", [0, 1])]),
        (("t1", 1), [(0, "t1", [1]), (0, "t2", [0, 1])]),
        (("t1", 9), [(0, "t1", []), (0, "t2", [0, 1])]),
        (("t2", 1), [(0, "t2", [1])]),
        (("t0", 0), [(42, "t2", []), (42, "t1", [])]),
        (("t1", -1), [(42, "t2", []), (42, "t1", [])]),
        (("zz", 0), [(42, "t2", []), (42, "t1", [])]),
    ],
)
def test_cursors(cursor: tuple[str, int], expected: list[Any]) -> None:
    assert page(["t2", "t1"], 2000, cursor) == (expected, None)


@pytest.mark.parametrize(
    ("cursor", "expected"),
    [
        (("t0", 0), [(0, "t1", [0, 1]), (0, "t2", [0, 1])]),
        (("t11", 5), [(0, "t2", [0, 1])]),
        (("t2", 7), [(0, "t2", [])]),
        (("zzz", 0), []),
        (("t1", -1), []),
    ],
)
def test_cursors_through_all_topics(cursor: tuple[str, int], expected: list[Any]) -> None:
    assert page([], 2000, cursor) == (expected, None)


def test_a_cursor_at_a_topic_that_is_gone() -> None:
    assert page(["nope", "t1"], 1, ("nope", 3)) == (
        [(3, "nope", []), (0, "t1", [0])],
        ("t1", 1),
    )


def test_a_replica_whose_disk_has_failed_here() -> None:
    """As Kafka 4.3.1 tells it."""
    services = FakeServices(an_image(a_topic("t1", ONE)), a_partition(None, "t1"))
    (partition,) = describe(["t1"], services=services)["topics"][0]["partitions"]
    names = ("error_code", "leader_id", "isr_nodes")
    assert [partition[name] for name in names] == [0, -1, []]
    names = ("eligible_leader_replicas", "last_known_elr", "offline_replicas")
    assert [partition[name] for name in names] == [[1], [1], [1]]


@pytest.mark.parametrize("limit", [1, 2, 3, 5])
def test_page_after_page_tells_each_partition_once(limit: int) -> None:
    told: list[tuple[str, int]] = []
    cursor: tuple[str, int] | None = None
    for _ in range(10):
        topics, cursor = page([], limit, cursor)
        told += [(name, index) for _, name, indexes in topics for index in indexes]
        if cursor is None:
            break
    assert cursor is None
    assert told == [
        ("__consumer_offsets", 0),
        ("__consumer_offsets", 1),
        ("compacted", 0),
        ("t1", 0),
        ("t1", 1),
        ("t2", 0),
        ("t2", 1),
    ]


def test_an_internal_topic_is_one_before_it_is_there() -> None:
    topics = describe(["__transaction_state", "nope"])["topics"]
    assert {topic["name"]: (topic["error_code"], topic["is_internal"]) for topic in topics} == {
        "__transaction_state": (3, True),
        "nope": (3, False),
    }
