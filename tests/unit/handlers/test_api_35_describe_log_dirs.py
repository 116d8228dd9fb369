"""Goal: tools see what lies where, how large it is, and which directory has failed.
Method: what Kafka 4.3.1 answered to null, empty, partial and repeated questions, in every version.
"""

from __future__ import annotations

from typing import Any

import pytest

from ottla.handlers import api_35_describe_log_dirs as module
from ottla.handlers.context import FutureReplica, LogDirState
from tests.unit.handlers.read_fakes import (
    LOG_DIR,
    FakeLog,
    FakeServices,
    a_partition,
    a_topic,
    an_image,
    ask,
    versions_of,
)

VERSIONS = versions_of(module)


def a_service() -> FakeServices:
    first = FakeLog("t1", 0, [(1, 0)] * 5, size=345)
    return FakeServices(
        an_image(a_topic("t1"), a_topic("t2")),
        a_partition(first),
        a_partition(FakeLog("t1", 1), index=1),
        a_partition(FakeLog("t2", 0, size=7), topic="t2"),
    )


def describe(services: FakeServices, version: int, topics: Any) -> list[dict[str, Any]]:
    answer = ask(module, services, version, topics=topics)
    assert (answer["throttle_time_ms"], answer["error_code"]) == (0, 0)
    results: list[dict[str, Any]] = answer["results"]
    return results


def sizes(result: dict[str, Any]) -> dict[tuple[str, int], int]:
    return {
        (topic["name"], each["partition_index"]): each["partition_size"]
        for topic in result["topics"]
        for each in topic["partitions"]
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_one_replica(version: int) -> None:
    asked = [{"topic": "t1", "partitions": [0, 9]}, {"topic": "nope", "partitions": [0]}]
    (result,) = describe(a_service(), version, asked)
    replica = {
        "partition_index": 0,
        "partition_size": 345,
        "offset_lag": 0,
        "is_future_key": False,
    }
    assert result == {
        "error_code": 0,
        "log_dir": LOG_DIR,
        "topics": [{"name": "t1", "partitions": [replica]}],
        "total_bytes": 1_000 if version >= 4 else -1,
        "usable_bytes": 400 if version >= 4 else -1,
        "is_cordoned": False,
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_null_is_all_and_empty_is_none(version: int) -> None:
    (everything,) = describe(a_service(), version, None)
    assert sizes(everything) == {("t1", 0): 345, ("t1", 1): 0, ("t2", 0): 7}
    for nothing in ([], [{"topic": "t1", "partitions": []}]):
        (result,) = describe(a_service(), version, nothing)
        assert result["topics"] == []


def test_a_replica_named_twice_is_told_once() -> None:
    twice = [{"topic": "t1", "partitions": [0, 0]}, {"topic": "t1", "partitions": [0, 1]}]
    (result,) = describe(a_service(), 5, twice)
    assert [topic["name"] for topic in result["topics"]] == ["t1"]
    assert [each["partition_index"] for each in result["topics"][0]["partitions"]] == [0, 1]


def test_the_lag_is_what_is_missing_up_to_the_watermark() -> None:
    services = a_service()
    lags = []
    for high_watermark in (3, 9):
        services.partitions.table["t1", 0].high_watermark = high_watermark
        (result,) = describe(services, 5, [{"topic": "t1", "partitions": [0]}])
        lags.append(result["topics"][0]["partitions"][0]["offset_lag"])
    assert lags == [0, 4]


def test_a_directory_that_has_failed() -> None:
    services = a_service()
    services.partitions.dirs.append(LogDirState("/data/two", 5, 5, error="it burns"))
    healthy, failed = describe(services, 5, None)
    assert (healthy["error_code"], failed["error_code"]) == (0, 56)
    assert failed["topics"] == []
    assert (failed["total_bytes"], failed["usable_bytes"]) == (-1, -1)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_replica_on_its_way_is_told_where_it_goes(version: int) -> None:
    services = a_service()
    services.partitions.dirs.append(LogDirState("/data/two", 1, 1))
    services.partitions.futures["/data/two"] = [FutureReplica("t1", 0, 200, 3)]
    here, there = describe(services, version, [{"topic": "t1", "partitions": [0]}])
    assert sizes(here) == {("t1", 0): 345}
    (topic,) = there["topics"]
    (replica,) = topic["partitions"]
    told = {name: value for name, value in replica.items() if name != "unknown_tagged_fields"}
    assert (topic["name"], told) == (
        "t1",
        {"partition_index": 0, "partition_size": 200, "offset_lag": 3, "is_future_key": True},
    )
    assert describe(services, version, [{"topic": "t2", "partitions": [0]}])[1]["topics"] == []
