"""Goal: ListOffsets tells what Kafka 4.3.1 told for the same log, in every version.
Method: the answers of a running Kafka to a partition with records at 1000, 3000, 2000, 3000, 2500.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.base.deferred import Deferred
from ottla.base.errors import StorageError
from ottla.handlers import api_02_list_offsets as module
from ottla.handlers.context import Context, Services
from tests.unit.handlers.read_fakes import (
    FakeLog,
    FakeServices,
    a_partition,
    a_topic,
    an_image,
    ask,
    versions_of,
)

RECORDS = [(1000, 0), (3000, 0), (2000, 0), (3000, 0), (2500, 0)]
NOT_FOUND = (0, -1, -1, -1)
REFUSED = (35, -1, -1, -1)
VERSIONS = versions_of(module)


def a_service(log: FakeLog | None = None, **changes: Any) -> FakeServices:
    partition = a_partition(log or FakeLog(records=list(RECORDS)))
    for name, value in changes.items():
        setattr(partition, name, value)
    empty = a_partition(FakeLog(partition=1), index=1)
    return FakeServices(an_image(a_topic("t1")), partition, empty)


def an_offline_service() -> FakeServices:
    return FakeServices(an_image(a_topic("t1")), a_partition(None))


def list_offsets(
    services: FakeServices,
    version: int,
    *asked: tuple[int, int, int],
    topic: str = "t1",
    replica_id: int = -1,
    isolation_level: int = 0,
) -> dict[int, tuple[int, int, int, int]]:
    """(error, timestamp, offset, epoch) by partition, of (partition, current epoch, timestamp)."""
    partitions = [
        {"partition_index": index, "current_leader_epoch": epoch, "timestamp": timestamp}
        for index, epoch, timestamp in asked
    ]
    answer = ask(
        module,
        services,
        version,
        replica_id=replica_id,
        isolation_level=isolation_level,
        topics=[{"name": topic, "partitions": partitions}],
        timeout_ms=1000,
    )
    return {
        each["partition_index"]: (
            each["error_code"],
            each["timestamp"],
            each["offset"],
            each["leader_epoch"],
        )
        for told in answer["topics"]
        for each in told["partitions"]
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_the_ends_of_the_log(version: int) -> None:
    epoch = 0 if version >= 4 else -1
    services = a_service()
    assert list_offsets(services, version, (0, -1, -1))[0] == (0, -1, 5, epoch)
    assert list_offsets(services, version, (0, -1, -2))[0] == (0, -1, 0, epoch)
    assert list_offsets(services, version, (1, -1, -1))[1] == (0, -1, 0, epoch)
    assert list_offsets(services, version, (1, -1, -2))[1] == (0, -1, 0, epoch)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        (0, (1000, 0)),
        (1000, (1000, 0)),
        (1001, (3000, 1)),
        (2600, (3000, 1)),
        (3000, (3000, 1)),
        (3001, (-1, -1)),
    ],
)
def test_a_moment_in_time(version: int, timestamp: int, expected: tuple[int, int]) -> None:
    code, *found, epoch = list_offsets(a_service(), version, (0, -1, timestamp))[0]
    assert (code, *found) == (0, *expected)
    assert epoch == (0 if version >= 4 and expected[1] >= 0 else -1)


@pytest.mark.parametrize(
    ("spec", "since", "expected"),
    [
        (-3, 7, (0, 3000, 1, 0)),
        (-4, 8, (0, -1, 0, 0)),
        (-5, 9, NOT_FOUND),
        (-6, 11, NOT_FOUND),
        (-7, 99, REFUSED),
        (-100, 99, REFUSED),
    ],
)
def test_a_special_timestamp_needs_its_version(
    spec: int, since: int, expected: tuple[int, int, int, int]
) -> None:
    for version in VERSIONS:
        told = list_offsets(a_service(), version, (0, -1, spec))[0]
        assert told == (expected if version >= since else REFUSED), version


def test_the_version_is_looked_at_before_the_epoch_and_the_partition() -> None:
    assert list_offsets(a_service(), 5, (0, 9, -3), (9, -1, -3)) == {0: REFUSED, 9: REFUSED}


def test_an_empty_partition_has_no_newest_record() -> None:
    for spec in (-3, -5, -6, 5):
        assert list_offsets(a_service(), 11, (1, -1, spec))[1] == NOT_FOUND
    assert list_offsets(a_service(), 11, (1, -1, -4))[1] == (0, -1, 0, 0)


def test_the_epoch_of_the_start_moves_with_the_start() -> None:
    log = FakeLog(records=[(1, 2), (2, 2), (3, 4)])
    services = a_service(log, leader_epoch=6)
    assert list_offsets(services, 11, (0, -1, -2))[0] == (0, -1, 0, 2)
    log.advance_log_start(2)
    assert list_offsets(services, 11, (0, -1, -2))[0] == (0, -1, 2, 4)
    assert list_offsets(services, 11, (0, -1, -1))[0] == (0, -1, 3, 6)


@pytest.mark.parametrize(("epoch", "code"), [(-1, 0), (0, 74), (2, 74), (3, 0), (4, 75)])
def test_the_clients_epoch_must_be_the_leaders(epoch: int, code: int) -> None:
    services = a_service(leader_epoch=3)
    assert list_offsets(services, 11, (0, epoch, -1))[0][0] == code


def test_partitions_that_are_not_here() -> None:
    services = a_service()
    assert list_offsets(services, 11, (9, -1, -1), (-1, -1, -1)) == {
        9: (3, -1, -1, -1),
        -1: (3, -1, -1, -1),
    }
    assert list_offsets(services, 11, (0, -1, -1), topic="nope")[0][0] == 3
    del services.partitions.table["t1", 1]
    assert list_offsets(services, 11, (1, -1, -1))[1][0] == 6
    assert list_offsets(a_service(is_leader=False), 11, (0, -1, -1))[0][0] == 6
    assert list_offsets(an_offline_service(), 11, (0, -1, -1))[0][0] == 56


def test_a_partition_named_twice_is_refused_once() -> None:
    told = list_offsets(
        a_service(), 11, (0, -1, -1), (0, -1, -2), (1, -1, -2), (9, -1, 1), (9, -1, 1)
    )
    assert {index: answer[0] for index, answer in told.items()} == {0: 42, 1: 0, 9: 42}


def test_topics_of_one_name_become_one() -> None:
    partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
    topics = [{"name": "t1", "partitions": each} for each in ([], [partition], [partition])]
    answer = ask(
        module, a_service(), 11, replica_id=-1, isolation_level=0, topics=topics, timeout_ms=0
    )
    assert [topic["name"] for topic in answer["topics"]] == ["t1"]
    assert [each["error_code"] for each in answer["topics"][0]["partitions"]] == [42]


def test_isolation_levels() -> None:
    log = FakeLog(records=list(RECORDS), first_unstable_offset=1)
    services = a_service(log)
    assert list_offsets(services, 11, (0, -1, -1))[0] == (0, -1, 5, 0)
    assert list_offsets(services, 11, (0, -1, -1), isolation_level=1)[0] == (0, -1, 1, 0)
    assert list_offsets(services, 11, (0, -1, -3), isolation_level=1)[0] == NOT_FOUND
    assert list_offsets(services, 11, (0, -1, 2000), isolation_level=1)[0] == NOT_FOUND
    assert list_offsets(services, 11, (0, -1, 500), isolation_level=1)[0] == (0, 1000, 0, 0)
    for unknown in (2, -1):
        told = list_offsets(services, 11, (0, -1, -1), (1, -1, -1), isolation_level=unknown)
        assert told == {0: (-1, -1, -1, -1), 1: (-1, -1, -1, -1)}


def test_consumers_do_not_see_past_the_watermark_replicas_do() -> None:
    services = a_service(high_watermark=2)
    assert list_offsets(services, 11, (0, -1, -1))[0] == (0, -1, 2, 0)
    assert list_offsets(services, 11, (0, -1, 3000))[0] == (0, 3000, 1, 0)
    for replica_id in (-2, 5):
        told = list_offsets(services, 11, (0, -1, -1), replica_id=replica_id)
        assert told[0] == (0, -1, 5, 0)


def test_the_debugging_consumer_may_ask_a_follower() -> None:
    services = a_service(is_leader=False, leader_epoch=3, high_watermark=2)
    assert list_offsets(services, 11, (0, -1, -1), replica_id=-2)[0] == (0, -1, 5, 3)
    assert list_offsets(services, 11, (0, 4, -1), replica_id=-2)[0][0] == 75
    assert list_offsets(services, 11, (0, -1, -1), replica_id=2)[0][0] == 6
    del services.partitions.table["t1", 1]
    assert list_offsets(services, 11, (1, -1, -1), replica_id=-2)[1][0] == 6


@pytest.mark.parametrize(("version", "code"), [(1, 5), (4, 5), (5, 78), (11, 78)])
def test_a_new_leader_does_not_tell_an_old_end(version: int, code: int) -> None:
    services = a_service(high_watermark=2, epoch_start_offset=4)
    assert list_offsets(services, version, (0, -1, -1))[0] == (code, -1, -1, -1)
    assert list_offsets(services, version, (0, -1, 3001))[0] == (code, -1, -1, -1)
    # What lies below the watermark is certain, whoever leads.
    assert list_offsets(services, version, (0, -1, -2))[0][:3] == (0, -1, 0)
    assert list_offsets(services, version, (0, -1, 1000))[0][:3] == (0, 1000, 0)
    assert list_offsets(services, version, (0, -1, -1), replica_id=2)[0][:3] == (0, -1, 5)


def test_a_disk_that_fails_goes_offline() -> None:
    failure = StorageError("/data/one/t1-0", "read")
    services = a_service(FakeLog(records=list(RECORDS), failure=failure))
    assert list_offsets(services, 11, (0, -1, 1000))[0] == (56, -1, -1, -1)
    assert services.failures == [failure]


def test_only_a_lookup_by_time_waits_for_the_pool() -> None:
    services = a_service()
    work: list[tuple[Callable[[], Any], Deferred[Any]]] = []

    def run(search: Callable[[], Any]) -> Deferred[Any]:
        work.append((search, Deferred()))
        return work[-1][1]

    services.pool = cast(Any, SimpleNamespace(run=run))
    assert list_offsets(services, 11, (0, -1, -1), (1, -1, -2))[0] == (0, -1, 5, 0)
    assert not work
    context = Context(cast(Services, services), 11, "test", "PLAINTEXT", 1)
    asked = SimpleNamespace(partition_index=0, current_leader_epoch=-1, timestamp=2000)
    topics = [SimpleNamespace(name="t1", partitions=[asked])]
    request = SimpleNamespace(replica_id=-1, isolation_level=0, topics=topics)
    answer = module.handle(context, request)
    assert isinstance(answer, Deferred)
    assert not answer.done
    for search, done in work:
        done.resolve(search())
    assert answer.result()["topics"][0]["partitions"][0]["offset"] == 1
