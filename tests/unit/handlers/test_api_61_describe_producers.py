"""Goal: people see who writes to a partition and whose transaction hangs.
Method: the producers that Kafka 4.3.1 showed after the same writes, and its refusals.
"""

from __future__ import annotations

from typing import Any

import pytest

from ottla.handlers import answer_budget
from ottla.handlers import api_61_describe_producers as module
from ottla.handlers.reply import CloseConnection
from ottla.log.producer_state import Marker
from ottla.records.batch_header import (
    ATTRIBUTES,
    BASE_SEQUENCE,
    LAST_OFFSET_DELTA,
    MAX_TIMESTAMP,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    TRANSACTIONAL_MASK,
    Header,
)
from tests.unit.handlers.read_fakes import (
    FakeLog,
    FakeServices,
    a_partition,
    a_topic,
    an_image,
    ask,
)


def a_header(producer_id: int, sequence: int, timestamp: int, attributes: int = 0) -> Header:
    header = [0] * 13
    header[PRODUCER_ID] = producer_id
    header[PRODUCER_EPOCH] = 0
    header[BASE_SEQUENCE] = sequence
    header[LAST_OFFSET_DELTA] = 0
    header[MAX_TIMESTAMP] = timestamp
    header[ATTRIBUTES] = attributes
    return tuple(header)


def a_log() -> FakeLog:
    """Three records of producer 6, then one of 7 in a transaction, as on the running Kafka."""
    log = FakeLog()
    for offset in range(3):
        log.producers.update(a_header(6, offset, 100 + offset), offset, now_ms=0)
    log.producers.update(a_header(7, 0, 200, TRANSACTIONAL_MASK), 3, now_ms=0)
    return log


def describe(services: FakeServices, *asked: tuple[str, list[int]]) -> list[Any]:
    topics = [{"name": name, "partition_indexes": indexes} for name, indexes in asked]
    answer = ask(module, services, 0, topics=topics)
    assert answer["throttle_time_ms"] == 0
    return [(topic["name"], topic["partitions"]) for topic in answer["topics"]]


IDEMPOTENT = {
    "producer_id": 6,
    "producer_epoch": 0,
    "last_sequence": 2,
    "last_timestamp": 102,
    "coordinator_epoch": -1,
    "current_txn_start_offset": -1,
}
IN_TRANSACTION = {
    "producer_id": 7,
    "producer_epoch": 0,
    "last_sequence": 0,
    "last_timestamp": 200,
    "coordinator_epoch": -1,
    "current_txn_start_offset": 3,
}


def test_producers_with_and_without_a_transaction() -> None:
    log = a_log()
    services = FakeServices(an_image(a_topic("t1")), a_partition(log))
    told = {
        "partition_index": 0,
        "error_code": 0,
        "error_message": None,
        "active_producers": [IDEMPOTENT, IN_TRANSACTION],
    }
    # What is asked twice is told twice.
    assert describe(services, ("t1", [0, 0])) == [("t1", [told, told])]
    log.producers.update_marker(a_header(7, -1, 300), 4, Marker(False, 0), now_ms=0)
    ended = describe(services, ("t1", [0]))[0][1][0]["active_producers"][1]
    assert ended == {
        **IN_TRANSACTION,
        "last_timestamp": 300,
        "coordinator_epoch": 0,
        "current_txn_start_offset": -1,
    }


def test_any_replica_will_do() -> None:
    partition = a_partition(a_log())
    partition.is_leader = False
    services = FakeServices(an_image(a_topic("t1")), partition)
    assert len(describe(services, ("t1", [0]))[0][1][0]["active_producers"]) == 2


def test_refusals() -> None:
    offline = a_partition(None, topic="t2")
    services = FakeServices(an_image(a_topic("t1"), a_topic("t2")), a_partition(FakeLog()), offline)
    told = describe(
        services,
        ("t1", [0, 1, 9]),
        ("t2", [0]),
        ("nope", [0]),
        ("nope", []),
        ("a/b", [1]),
        ("", [0]),
    )
    codes = [(name, [each["error_code"] for each in partitions]) for name, partitions in told]
    assert codes == [
        ("t1", [0, 6, 3]),
        ("t2", [56]),
        ("nope", [3]),
        ("nope", []),
        ("a/b", [17]),
        ("", [17]),
    ]
    for _, partitions in told:
        for each in partitions:
            assert each["active_producers"] == []
            assert bool(each["error_message"]) == (each["error_code"] != 0)


def test_one_that_is_asked_for_again_is_told_again() -> None:
    services = FakeServices(an_image(a_topic("t")), a_partition(a_log(), topic="t"))
    [(_, told)] = describe(services, ("t", [0, 0, 9, 0]))
    assert [one["partition_index"] for one in told] == [0, 0, 9, 0]
    assert told[0] == told[1] == told[3]
    assert len(told[0]["active_producers"]) == 2


def test_nobody_is_told_any_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_budget, "RESPONSE_ENTRIES_MAX", 1_000)
    services = FakeServices(an_image(a_topic("t")), a_partition(a_log(), topic="t"))
    with pytest.raises(CloseConnection, match="more than 1,000 entries"):
        describe(services, ("t", [0] * 400))
