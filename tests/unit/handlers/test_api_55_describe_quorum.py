"""Goal: Kafka's quorum tool finds the controller as the one voter and leader.
Method: the shape of Kafka 4.3.1's answers and refusals, in every version.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from ottla.handlers import api_55_describe_quorum as module
from tests.unit.handlers.read_fakes import NOW_MS, FakeServices, an_image, ask, versions_of

VERSIONS = versions_of(module)
METADATA = "__cluster_metadata"


def describe(version: int, *asked: tuple[str, list[int]]) -> dict[str, Any]:
    topics = [
        {"topic_name": name, "partitions": [{"partition_index": index} for index in indexes]}
        for name, indexes in asked
    ]
    return ask(module, FakeServices(an_image()), version, topics=topics)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_controller_is_the_quorum(version: int) -> None:
    answer = describe(version, (METADATA, [0]))
    voter = {
        "replica_id": 1,
        "log_end_offset": 42,
        "last_fetch_timestamp": NOW_MS if version >= 1 else -1,
        "last_caught_up_timestamp": NOW_MS if version >= 1 else -1,
        "replica_directory_id": UUID(int=0),
    }
    partition = {
        "partition_index": 0,
        "error_code": 0,
        "error_message": "",
        "leader_id": 1,
        "leader_epoch": 3,
        "high_watermark": 42,
        "current_voters": [voter],
        "observers": [],
    }
    assert answer["topics"] == [{"topic_name": METADATA, "partitions": [partition]}]
    assert (answer["error_code"], answer["error_message"]) == (0, "")
    node = {"node_id": 1, "listeners": [{"name": "PLAINTEXT", "host": "host1", "port": 9092}]}
    assert list(answer["nodes"]) == ([node] if version >= 2 else [])


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "asked",
    [
        [(METADATA, [1])],
        [(METADATA, [0, 1])],
        [(METADATA, [])],
        [("t1", [0])],
        [(METADATA, [0]), ("t1", [0, 7])],
        [],
    ],
)
def test_anything_else_is_unknown(version: int, asked: list[tuple[str, list[int]]]) -> None:
    answer = describe(version, *asked)
    assert answer["error_code"] == 0
    assert list(answer["nodes"]) == []
    told = [
        (topic["topic_name"], [each["partition_index"] for each in topic["partitions"]])
        for topic in answer["topics"]
    ]
    assert told == asked
    for topic in answer["topics"]:
        for partition in topic["partitions"]:
            assert partition["error_code"] == 3
            assert bool(partition["error_message"]) == (version >= 2)
            assert (partition["leader_id"], partition["high_watermark"]) == (0, 0)
            assert partition["current_voters"] == []


def test_no_controller() -> None:
    image = replace(an_image(), controller_id=-1)
    topics = [{"topic_name": METADATA, "partitions": [{"partition_index": 0}]}]
    answer = ask(module, FakeServices(image), 2, topics=topics)
    assert answer["topics"][0]["partitions"][0]["leader_id"] == -1
    assert answer["nodes"] == []
