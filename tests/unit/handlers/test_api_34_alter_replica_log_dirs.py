"""Goal: a move that can be done is begun, one that can not is refused, never half done.
Method: codes and their order as Kafka 4.3.1 answered with three log dirs, one of them broken.
"""

from __future__ import annotations

import pytest

from ottla.handlers import api_34_alter_replica_log_dirs as module
from ottla.handlers.context import LogDirState
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

OTHER_DIR = "/data/two"
BROKEN_DIR = "/data/three"


def a_service(*, broken: bool = False) -> FakeServices:
    services = FakeServices(
        an_image(a_topic("t1"), a_topic("t2")),
        a_partition(FakeLog()),
        a_partition(None, topic="t2"),
    )
    services.partitions.dirs.append(LogDirState(OTHER_DIR, 1, 1))
    if broken:
        services.partitions.dirs.append(LogDirState(BROKEN_DIR, 1, 1, error="it burns"))
    return services


def move(
    services: FakeServices, version: int, *asked: tuple[str, str, list[int]]
) -> dict[str, dict[int, int]]:
    dirs = [
        {"path": path, "topics": [{"name": name, "partitions": indexes}]}
        for path, name, indexes in asked
    ]
    answer = ask(module, services, version, dirs=dirs)
    assert answer["throttle_time_ms"] == 0
    return {
        result["topic_name"]: {
            each["partition_index"]: each["error_code"] for each in result["partitions"]
        }
        for result in answer["results"]
    }


@pytest.mark.parametrize("version", versions_of(module))
def test_moves_begin(version: int) -> None:
    services = a_service()
    for path in (OTHER_DIR, LOG_DIR):
        assert move(services, version, (path, "t1", [0])) == {"t1": {0: 0}}
    assert services.partitions.moved == [("t1", 0, OTHER_DIR), ("t1", 0, LOG_DIR)]
    services.partitions.disk_refuses = True
    assert move(services, version, (OTHER_DIR, "t1", [0])) == {"t1": {0: 56}}


@pytest.mark.parametrize("version", versions_of(module))
def test_refusals(version: int) -> None:
    services = a_service()
    assert move(services, version, (LOG_DIR, "t1", [9]), (LOG_DIR, "nope", [0])) == {
        "t1": {9: 3},
        "nope": {0: 3},
    }
    # A directory that is none of ours is told before a partition that does not exist.
    for path in ("/nope", "relative", "", f"{OTHER_DIR}/"):
        assert move(services, version, (path, "t1", [0, 9]), (path, "nope", [0])) == {
            "t1": {0: 57, 9: 57},
            "nope": {0: 57},
        }
    assert move(services, version, (OTHER_DIR, "t1", [1])) == {"t1": {1: 9}}
    assert move(services, version, (LOG_DIR, "t2", [0])) == {"t2": {0: 56}}
    assert services.partitions.moved == []


def test_a_name_that_is_too_long_for_a_replica_on_its_way() -> None:
    longest = "u" * 213
    assert move(a_service(), 2, (OTHER_DIR, longest, [0])) == {longest: {0: 3}}
    assert move(a_service(), 2, (OTHER_DIR, longest, [10])) == {longest: {10: 17}}
    assert move(a_service(), 2, ("/nope", longest + "u", [0])) == {longest + "u": {0: 17}}


def test_nothing_moves_while_a_log_dir_is_offline() -> None:
    services = a_service(broken=True)
    for path in (OTHER_DIR, BROKEN_DIR):
        assert move(services, 2, (path, "t1", [0])) == {"t1": {0: 56}}
    assert services.partitions.moved == []
    assert move(services, 2, (LOG_DIR, "t1", [0])) == {"t1": {0: 0}}
    assert move(services, 2, (LOG_DIR, "nope", [0]), (BROKEN_DIR, "nope", [1])) == {
        "nope": {0: 3, 1: 56}
    }


def test_a_replica_that_is_not_here_yet_will_be_made_there() -> None:
    services = a_service()
    move(services, 2, (OTHER_DIR, "t1", [0, 1]), (OTHER_DIR, "nope", [0]), ("/nope", "t1", [7]))
    assert services.partitions.preferred == {("t1", 1): OTHER_DIR, ("nope", 0): OTHER_DIR}


def test_the_last_mention_counts_and_nothing_asks_for_nothing() -> None:
    services = a_service()
    assert move(services, 2, ("/nope", "t1", [0]), (LOG_DIR, "t1", [0])) == {"t1": {0: 0}}
    assert move(services, 2, (LOG_DIR, "t1", [])) == {}
    assert move(services, 2) == {}
