"""Goal: clients of every version find brokers, topics and leaders as Kafka 4.3.1 tells them.
Method: its answers to the same requests: all, none, by name, by id, missing, bad, without leader.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from ottla.handlers import api_03_metadata as module
from ottla.metadata.image import MetadataImage, PartitionState
from tests.unit.handlers.read_fakes import (
    FakeLog,
    FakeServices,
    a_broker,
    a_partition,
    a_topic,
    an_image,
    ask,
    topic_id_of,
    versions_of,
)

VERSIONS = versions_of(module)
NULL_ID = UUID(int=0)
NOT_ASKED_FOR = -(2**31)


def a_service(**properties: str) -> FakeServices:
    image = an_image(a_topic("t1"), a_topic("t2"), a_topic("__consumer_offsets"))
    return FakeServices(image, properties=properties)


def metadata(
    services: FakeServices, version: int, topics: list[Any] | None, **fields: Any
) -> dict[str, Any]:
    """Topics are names, ids, or (id, name)."""
    asked = {
        "allow_auto_topic_creation": True,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
        **fields,
    }
    listener = asked.pop("listener", "PLAINTEXT")
    return ask(
        module,
        services,
        version,
        listener=listener,
        topics=None if topics is None else [_topic(each) for each in topics],
        **asked,
    )


def _topic(asked: Any) -> dict[str, Any]:
    if isinstance(asked, str):
        return {"topic_id": NULL_ID, "name": asked}
    topic_id, name = (asked, None) if isinstance(asked, UUID) else asked
    return {"topic_id": topic_id, "name": name}


def codes(answer: dict[str, Any]) -> dict[str, int]:
    assert all(not topic["partitions"] for topic in answer["topics"] if topic["error_code"])
    return {topic["name"]: topic["error_code"] for topic in answer["topics"]}


@pytest.mark.parametrize("version", VERSIONS)
def test_one_topic_whole(version: int) -> None:
    answer = metadata(a_service(), version, ["t1"])
    partitions = [
        {
            "error_code": 0,
            "partition_index": index,
            "leader_id": 1,
            "leader_epoch": 0 if version >= 7 else -1,
            "replica_nodes": [1],
            "isr_nodes": [1],
            "offline_replicas": [],
        }
        for index in (0, 1)
    ]
    assert answer == {
        "throttle_time_ms": 0,
        "brokers": [{"node_id": 1, "host": "host1", "port": 9092, "rack": None}],
        "cluster_id": "9B0Gb9fHTdyps9xXL8uT-Q" if version >= 2 else None,
        "controller_id": 1 if version >= 1 else -1,
        "topics": [
            {
                "error_code": 0,
                "name": "t1",
                "topic_id": topic_id_of("t1") if version >= 10 else NULL_ID,
                "is_internal": False,
                "partitions": partitions,
                "topic_authorized_operations": NOT_ASKED_FOR,
            }
        ],
        "cluster_authorized_operations": NOT_ASKED_FOR,
        "error_code": 0,
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_all_topics_and_none(version: int) -> None:
    everything = {"t1": 0, "t2": 0, "__consumer_offsets": 0}
    nothing = metadata(a_service(), version, [])
    assert len(nothing["brokers"]) == 1
    assert codes(nothing) == (everything if version == 0 else {})
    if version == 0:
        return
    answer = metadata(a_service(), version, None)
    assert codes(answer) == everything
    internal = [topic["name"] for topic in answer["topics"] if topic["is_internal"]]
    assert internal == ["__consumer_offsets"]


@pytest.mark.parametrize("version", VERSIONS)
def test_topics_that_are_not_there(version: int) -> None:
    names = ["new", "a/b", "", "..", "t1", "t1", "new", "x" * 250]
    answer = metadata(a_service(), version, names)
    # Each once, those that are there first.
    assert list(codes(answer).items()) == [
        ("t1", 0),
        ("new", 3),
        ("a/b", 17),
        ("", 17),
        ("..", 17),
        ("x" * 250, 17),
    ]
    assert len(answer["topics"]) == 6
    assert {topic["topic_id"] for topic in answer["topics"][1:]} == {NULL_ID}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("broker_allows", [True, False])
@pytest.mark.parametrize("client_allows", [True, False])
def test_a_missing_topic_is_ordered_if_both_sides_allow(
    version: int, broker_allows: bool, client_allows: bool
) -> None:
    services = a_service(**{"auto.create.topics.enable": str(broker_allows).lower()})
    answer = metadata(services, version, ["new", "a/b"], allow_auto_topic_creation=client_allows)
    # The answer is the same: the client asks again.
    assert codes(answer) == {"new": 3, "a/b": 17}
    ordered = [
        result.name for results in services.controller.run(services.image) for result in results
    ]
    # Before v4 a client has no word in it.
    allowed = broker_allows and (client_allows or version < 4)
    assert ordered == (["new"] if allowed else [])


def test_nothing_is_ordered_for_topics_that_exist_or_have_ids() -> None:
    services = a_service()
    for topics in (None, [], ["t1"], ["a/b"], [UUID(int=77)]):
        metadata(services, 13, topics)
    assert services.controller.submitted == []


@pytest.mark.parametrize("version", [12, 13])
def test_by_id(version: int) -> None:
    services = a_service()
    known, unknown = topic_id_of("t1"), UUID(int=77)
    assert codes(metadata(services, version, [known])) == {"t1": 0}
    # The id counts; a name beside it, right or wrong, does not.
    assert codes(metadata(services, version, [(known, "t2")])) == {"t1": 0}
    assert codes(metadata(services, version, [known, known, "t2"])) == {"t1": 0}
    answer = metadata(
        services, version, [unknown, unknown], include_topic_authorized_operations=True
    )
    assert answer["topics"] == [
        {
            "error_code": 100,
            "name": None,
            "topic_id": unknown,
            "is_internal": False,
            "partitions": [],
            "topic_authorized_operations": NOT_ASKED_FOR,
        }
    ]
    assert len(answer["brokers"]) == 1


@pytest.mark.parametrize(
    ("version", "topics"),
    [
        (10, [topic_id_of("t1")]),
        (11, [(topic_id_of("t1"), "t1"), "t2"]),
        (11, [UUID(int=77)]),
        (10, [(NULL_ID, None)]),
        (12, [(NULL_ID, None)]),
        (13, ["t1", (NULL_ID, None)]),
    ],
)
def test_what_can_not_be_asked_is_refused_as_a_whole(version: int, topics: list[Any]) -> None:
    services = a_service()
    answer = metadata(services, version, topics)
    assert answer["brokers"] == []
    assert (answer["cluster_id"], answer["controller_id"]) == (None, -1)
    assert [topic["error_code"] for topic in answer["topics"]] == [42] * len(topics)
    for asked, told in zip(map(_topic, topics), answer["topics"], strict=True):
        assert told["name"] == (asked["name"] or "")
        assert told["topic_id"] == asked["topic_id"]
        assert told["topic_authorized_operations"] == NOT_ASKED_FOR
    assert answer["error_code"] == (42 if version >= 13 else 0)
    assert services.controller.submitted == []


@pytest.mark.parametrize("version", VERSIONS)
def test_authorized_operations(version: int) -> None:
    answer = metadata(
        a_service(),
        version,
        ["t1", "zz/"],
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )
    on_cluster = 8096 if 8 <= version <= 10 else NOT_ASKED_FOR
    assert answer["cluster_authorized_operations"] == on_cluster
    on_topic = 3576 if version >= 8 else NOT_ASKED_FOR
    told = [topic["topic_authorized_operations"] for topic in answer["topics"]]
    assert told == [on_topic, on_topic]


def test_what_one_client_asks_for_is_not_told_to_another() -> None:
    services = a_service()
    told = []
    for on_topic, on_cluster in ((True, True), (False, True), (True, False), (False, False)):
        answer = metadata(
            services,
            8,
            ["t1"],
            include_topic_authorized_operations=on_topic,
            include_cluster_authorized_operations=on_cluster,
        )
        of_topic = answer["topics"][0]["topic_authorized_operations"]
        told.append((of_topic, answer["cluster_authorized_operations"]))
    assert told == [
        (3576, 8096),
        (NOT_ASKED_FOR, 8096),
        (3576, NOT_ASKED_FOR),
        (NOT_ASKED_FOR, NOT_ASKED_FOR),
    ]


def a_cluster() -> MetadataImage:
    """Broker 2 is fenced, 3 has another listener, 4 is gone."""
    states = [
        PartitionState(1, 5, (1, 2), (1, 2)),
        PartitionState(-1, 6, (4, 2), (4,)),
        PartitionState(3, 7, (3, 1), (3, 1)),
        PartitionState(4, 8, (4, 1), (4, 1)),
    ]
    other = {"OTHER": ("elsewhere", 1)}
    brokers = [a_broker(1, rack="r1"), a_broker(2, fenced=True), a_broker(3, endpoints=other)]
    return an_image(a_topic("t", *states), brokers=brokers)


@pytest.mark.parametrize("version", VERSIONS)
def test_leaders_that_can_not_be_reached(version: int) -> None:
    answer = metadata(FakeServices(a_cluster()), version, ["t"])
    rack = "r1" if version >= 1 else None
    assert answer["brokers"] == [{"node_id": 1, "host": "host1", "port": 9092, "rack": rack}]
    told = {
        each["partition_index"]: (each["error_code"], each["leader_id"])
        for each in answer["topics"][0]["partitions"]
    }
    assert told == {
        0: (9 if version == 0 else 0, 1),
        1: (5, -1),
        2: (72 if version >= 6 else 5, -1),
        3: (5, -1),
    }
    epochs = [each["leader_epoch"] for each in answer["topics"][0]["partitions"]]
    assert epochs == ([5, 6, 7, 8] if version >= 7 else [-1] * 4)


@pytest.mark.parametrize("version", VERSIONS)
def test_replicas_that_can_not_be_reached(version: int) -> None:
    partitions = metadata(FakeServices(a_cluster()), version, ["t"])["topics"][0]["partitions"]
    replicas = [(each["replica_nodes"], each["isr_nodes"]) for each in partitions]
    offline = [list(each["offline_replicas"]) for each in partitions]
    if version == 0:
        # It has no field for them: they are left out.
        assert replicas == [([1], [1]), ([], []), ([1], [1]), ([1], [1])]
        return
    assert replicas == [([1, 2], [1, 2]), ([4, 2], []), ([3, 1], [3, 1]), ([4, 1], [4, 1])]
    assert offline == ([[2], [4, 2], [3], [4]] if version >= 5 else [[]] * 4)


@pytest.mark.parametrize("version", VERSIONS)
def test_replicas_whose_disk_has_failed_here(version: int) -> None:
    """As Kafka 4.3.1 tells them: one on its own, one that another leads by now, and one that is
    well."""
    states = [
        PartitionState(1, 5, (1,), (1,)),
        PartitionState(2, 6, (1, 2), (2,)),
        PartitionState(1, 7, (1, 2), (1, 2)),
    ]
    image = an_image(a_topic("t", *states), brokers=[a_broker(1), a_broker(2)])
    services = FakeServices(image, *(a_partition(FakeLog(), "t", index) for index in range(3)))

    def told() -> list[tuple[Any, ...]]:
        partitions = metadata(services, version, ["t"])["topics"][0]["partitions"]
        names = ("error_code", "leader_id", "replica_nodes", "isr_nodes", "offline_replicas")
        return [tuple(each[name] for name in names) for each in partitions]

    assert [each[:2] for each in told()] == [(0, 1), (0, 2), (0, 1)]
    for index in (0, 1):
        services.partitions.table["t", index].log = None
    if version == 0:
        assert told() == [(5, -1, [], [], []), (9, 2, [2], [2], []), (0, 1, [1, 2], [1, 2], [])]
        return
    offline = [1] if version >= 5 else []
    assert told() == [
        (5, -1, [1], [], offline),
        (0, 2, [1, 2], [2], offline),
        (0, 1, [1, 2], [1, 2], []),
    ]


@pytest.mark.parametrize("version", [5, 13])
def test_replicas_whose_disk_has_failed_elsewhere(version: int) -> None:
    """Told by every broker; also where the one that failed led until a moment ago."""
    states = [PartitionState(2, 5, (2, 1), (2, 1)), PartitionState(1, 6, (1, 2), (1,))]
    topic = a_topic("t", *states)
    well = an_image(topic, brokers=[a_broker(1), a_broker(2)])
    services = FakeServices(well, *(a_partition(FakeLog(), "t", index) for index in range(2)))

    def told() -> list[tuple[Any, ...]]:
        partitions = metadata(services, version, ["t"])["topics"][0]["partitions"]
        names = ("error_code", "leader_id", "isr_nodes", "offline_replicas")
        return [tuple(each[name] for name in names) for each in partitions]

    assert told() == [(0, 2, [2, 1], []), (0, 1, [1], [])]
    failed = a_broker(2, offline={topic.topic_id: frozenset({0, 1})})
    services.image = an_image(topic, brokers=[a_broker(1), failed])
    assert told() == [(5, -1, [], [2]), (0, 1, [1], [2])]
    services.image = well
    assert told() == [(0, 2, [2, 1], []), (0, 1, [1], [])]


def test_the_level_of_eligible_leaders_is_told_of_at_once() -> None:
    image = an_image(a_topic("t", PartitionState(-1, 4, (2,), (2,))), brokers=[a_broker(1)])
    services = FakeServices(image)

    def in_sync() -> list[int]:
        (partition,) = metadata(services, 12, ["t"])["topics"][0]["partitions"]
        return list(partition["isr_nodes"])

    assert in_sync() == []
    services.image = replace(image, features={"metadata.version": 30})
    assert in_sync() == [2]
    services.image = image
    assert in_sync() == []


def test_another_listener_shows_another_cluster() -> None:
    services = FakeServices(a_cluster())
    assert [each["node_id"] for each in metadata(services, 12, ["t"])["brokers"]] == [1]
    elsewhere = metadata(services, 12, ["t"], listener="OTHER")
    assert elsewhere["brokers"] == [{"node_id": 3, "host": "elsewhere", "port": 1, "rack": None}]
    leaders = [each["leader_id"] for each in elsewhere["topics"][0]["partitions"]]
    assert leaders == [-1, -1, 3, -1]


def test_what_is_kept_follows_the_image() -> None:
    services = FakeServices(an_image(a_topic("t1"), a_topic("t2")))

    def leaders() -> dict[str, list[int]]:
        return {
            topic["name"]: [each["leader_id"] for each in topic["partitions"]]
            for topic in metadata(services, 12, None)["topics"]
        }

    assert leaders() == {"t1": [1, 1], "t2": [1, 1]}
    before = services.image
    changed = a_topic("t1", PartitionState(-1, 1, (1,), (1,)))
    services.image = replace(before, topics={**before.topics, "t1": changed})
    assert leaders() == {"t1": [-1], "t2": [1, 1]}
    services.image = replace(services.image, brokers={})
    assert leaders() == {"t1": [-1], "t2": [-1, -1]}
    assert metadata(services, 12, [])["brokers"] == []
    services.image = replace(before, controller_id=-1)
    assert metadata(services, 12, [])["controller_id"] == -1
    assert leaders() == {"t1": [1, 1], "t2": [1, 1]}


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_PIECES_MAX", 4)
    services = a_service()
    for number in range(20):
        assert codes(metadata(services, 12, ["t1"], listener=f"L{number}")) == {"t1": 0}
        assert len(module._kept) <= 4


def test_topics_that_come_and_go_leave_nothing_behind() -> None:
    image = replace(an_image(), cluster_id="come and go")
    services = FakeServices(image)
    for number in range(20):
        topic = a_topic(f"passing{number}")
        services.image = replace(image, topics={topic.name: topic})
        assert codes(metadata(services, 12, [topic.name])) == {topic.name: 0}
    (pieces,) = [kept for key, kept in module._kept.items() if key[0] == "come and go"]
    services.image = replace(image, topics={})
    metadata(services, 12, [])
    assert pieces.kept_count() == 0


@pytest.mark.parametrize("version", [1, 9, 13])
def test_an_internal_topic_is_one_before_it_is_there(version: int) -> None:
    answer = metadata(a_service(), version, ["__share_group_state", "nope"])
    told = {topic["name"]: topic["is_internal"] for topic in answer["topics"]}
    assert told == {"__share_group_state": True, "nope": False}
    assert set(codes(answer).values()) == {3}
