"""Goal: a client learns where an epoch ends in the leader's log.
Method: what Kafka 4.3.1 answered, in every version, and the rules of KIP-279 on a log of epochs.
"""

from __future__ import annotations

import pytest

from ottla.handlers import api_23_offset_for_leader_epoch as module
from tests.unit.handlers.read_fakes import (
    FakeLog,
    FakeServices,
    a_partition,
    a_topic,
    an_image,
    ask,
    versions_of,
)


def a_service(log: FakeLog | None, leader_epoch: int = 0, epoch_start: int = 0) -> FakeServices:
    partition = a_partition(log, epoch=leader_epoch)
    partition.epoch_start_offset = epoch_start
    return FakeServices(
        an_image(a_topic("t1")), partition, a_partition(FakeLog(partition=1), index=1)
    )


def end_of(
    services: FakeServices,
    index: int,
    current_leader_epoch: int,
    epoch: int,
    *,
    version: int = 4,
    topic: str = "t1",
) -> tuple[int, int, int]:
    """(error, epoch, end offset)"""
    asked = {
        "partition": index,
        "current_leader_epoch": current_leader_epoch,
        "leader_epoch": epoch,
    }
    answer = ask(
        module, services, version, replica_id=-1, topics=[{"topic": topic, "partitions": [asked]}]
    )
    assert answer["throttle_time_ms"] == 0
    assert answer["topics"][0]["topic"] == topic
    (told,) = answer["topics"][0]["partitions"]
    assert told["partition"] == index
    return told["error_code"], told["leader_epoch"], told["end_offset"]


@pytest.mark.parametrize("version", versions_of(module))
@pytest.mark.parametrize(
    ("index", "current", "epoch", "expected"),
    [
        (0, -1, 0, (0, 0, 5)),
        (0, -1, -1, (0, -1, -1)),
        (0, -1, 1, (0, -1, -1)),
        (0, 0, 0, (0, 0, 5)),
        (0, 1, 0, (75, -1, -1)),
        (1, -1, 0, (0, 0, 0)),
        (9, -1, 0, (3, -1, -1)),
    ],
)
def test_as_kafka_answers(
    version: int, index: int, current: int, epoch: int, expected: tuple[int, int, int]
) -> None:
    services = a_service(FakeLog(records=[(1, 0)] * 5))
    assert end_of(services, index, current, epoch, version=version) == expected


def test_refusals() -> None:
    services = a_service(FakeLog(records=[(1, 0)] * 5), leader_epoch=3)
    assert end_of(services, 0, 2, 0) == (74, -1, -1)
    assert end_of(services, 0, -1, 0, topic="nope") == (3, -1, -1)
    assert end_of(a_service(None), 0, -1, 0) == (56, -1, -1)
    services.partitions.table["t1", 0].is_leader = False
    assert end_of(services, 0, -1, 0) == (6, -1, -1)
    del services.partitions.table["t1", 1]
    assert end_of(services, 1, -1, 0) == (6, -1, -1)


def test_epochs_without_batches_end_where_the_next_begins() -> None:
    log = FakeLog(records=[(1, 2), (1, 2), (1, 4)])
    services = a_service(log, leader_epoch=7, epoch_start=3)
    ends = {epoch: end_of(services, 0, -1, epoch)[1:] for epoch in range(9)}
    assert ends == {
        0: (0, 0),
        1: (1, 0),
        2: (2, 2),
        3: (2, 2),
        4: (4, 3),
        5: (4, 3),
        6: (4, 3),
        7: (7, 3),  # the leader's own epoch, in which nothing is written yet
        8: (-1, -1),
    }


def test_a_first_epoch_in_which_nothing_is_written() -> None:
    services = a_service(FakeLog(), leader_epoch=5)
    assert end_of(services, 0, -1, 5) == (0, 5, 0)
    assert end_of(services, 0, -1, 3) == (0, 3, 0)
    assert end_of(services, 0, -1, 6) == (0, -1, -1)


def test_what_is_asked_twice_is_told_twice() -> None:
    services = a_service(FakeLog(records=[(1, 0)] * 5))
    asked = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}
    answer = ask(
        module,
        services,
        4,
        replica_id=-1,
        topics=[
            {"topic": "t1", "partitions": [asked, asked]},
            {"topic": "t1", "partitions": []},
        ],
    )
    assert [len(topic["partitions"]) for topic in answer["topics"]] == [2, 0]
