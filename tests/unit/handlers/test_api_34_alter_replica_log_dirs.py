"""Goal: a replica stays where it is; a move that can not be done is refused, never half done.
Method: codes and their order as Kafka 4.3.1 answers, and a second log dir.
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


def a_service() -> FakeServices:
    services = FakeServices(
        an_image(a_topic("t1"), a_topic("t2")),
        a_partition(FakeLog()),
        a_partition(None, topic="t2"),
    )
    services.partitions.dirs += [
        LogDirState(OTHER_DIR, 1, 1),
        LogDirState(BROKEN_DIR, 1, 1, error="it burns"),
    ]
    return services


def move(version: int, *asked: tuple[str, str, list[int]]) -> dict[str, dict[int, int]]:
    dirs = [
        {"path": path, "topics": [{"name": name, "partitions": indexes}]}
        for path, name, indexes in asked
    ]
    answer = ask(module, a_service(), version, dirs=dirs)
    assert answer["throttle_time_ms"] == 0
    return {
        result["topic_name"]: {
            each["partition_index"]: each["error_code"] for each in result["partitions"]
        }
        for result in answer["results"]
    }


@pytest.mark.parametrize("version", versions_of(module))
def test_codes(version: int) -> None:
    assert move(version, (LOG_DIR, "t1", [0, 9]), (LOG_DIR, "nope", [0])) == {
        "t1": {0: 0, 9: 3},
        "nope": {0: 3},
    }
    # A directory that is none of ours is told before a partition that does not exist.
    for path in ("/nope", "relative", ""):
        assert move(version, (path, "t1", [0, 9]), (path, "nope", [0])) == {
            "t1": {0: 57, 9: 57},
            "nope": {0: 57},
        }
    assert move(version, (OTHER_DIR, "t1", [0, 1])) == {"t1": {0: 35, 1: 9}}
    assert move(version, (BROKEN_DIR, "t1", [0])) == {"t1": {0: 56}}
    assert move(version, (LOG_DIR, "t2", [0])) == {"t2": {0: 56}}


def test_the_last_mention_counts_and_nothing_asks_for_nothing() -> None:
    assert move(2, ("/nope", "t1", [0]), (LOG_DIR, "t1", [0])) == {"t1": {0: 0}}
    assert move(2, (LOG_DIR, "t1", [])) == {}
    assert move(2) == {}
