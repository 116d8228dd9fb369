"""ListOffsets 1-11: where a partition starts and ends, and where a moment in time lies in it.

v2 isolation level; v4 leader epochs; v6 flexible; v7 the newest timestamp; v8 earliest local;
v9 last tiered; v10 a time-out (for remote storage, without effect here); v11 earliest pending
upload. Nothing is tiered here: the local log is the whole log.
"""

from __future__ import annotations

from typing import Any

from ottla.base.deferred import Deferred, all_of
from ottla.base.errors import ProtocolError, StorageError
from ottla.handlers.context import Context
from ottla.handlers.local_partitions import find_leader, find_replica
from ottla.log.partition_log import PartitionLog
from ottla.protocol.error_codes import (
    INVALID_REQUEST,
    KAFKA_STORAGE_ERROR,
    LEADER_NOT_AVAILABLE,
    NONE,
    OFFSET_NOT_AVAILABLE,
    UNKNOWN_SERVER_ERROR,
    UNSUPPORTED_VERSION,
)
from ottla.replication.partition import Partition

API_KEY = 2
VERSIONS = (1, 11)

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LAST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

SPEC_SINCE_VERSION = {
    LATEST: 0,
    EARLIEST: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LAST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}

CONSUMER = -1
DEBUGGING_CONSUMER = -2
READ_UNCOMMITTED = 0
READ_COMMITTED = 1
OFFSET_NOT_AVAILABLE_FROM = 5

Fields = dict[str, Any]
Found = tuple[int, int, int]
"""Timestamp, offset, leader epoch."""

NOTHING: Found = (-1, -1, -1)


def handle(context: Context, request: Any) -> Fields | Deferred[Fields]:
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        # Kafka fails on the unknown value as a whole and tells each partition so.
        return _answer([_all_refused(topic) for topic in request.topics])
    wanted, duplicates = _once_each(request)
    topics: list[Fields] = []
    searches: list[Deferred[None]] = []
    for name, partitions in wanted.items():
        answers = []
        for index, partition in partitions.items():
            answer = _refused(index, INVALID_REQUEST)
            if (name, index) not in duplicates:
                searches += _list_offset(context, request, name, partition, answer)
            answers.append(answer)
        topics.append({"name": name, "partitions": answers})
    if not searches:
        return _answer(topics)
    answered: Deferred[Fields] = Deferred()
    all_of(searches).when_done(lambda _: answered.resolve(_answer(topics)))
    return answered


def _answer(topics: list[Fields]) -> Fields:
    return {"throttle_time_ms": 0, "topics": topics}


def _all_refused(topic: Any) -> Fields:
    answers = [
        _refused(partition.partition_index, UNKNOWN_SERVER_ERROR) for partition in topic.partitions
    ]
    return {"name": topic.name, "partitions": answers}


def _once_each(request: Any) -> tuple[dict[str, dict[int, Any]], set[tuple[str, int]]]:
    """Every partition once; those asked for twice are told to be an invalid request, once."""
    wanted: dict[str, dict[int, Any]] = {}
    duplicates = set()
    for topic in request.topics:
        for partition in topic.partitions:
            partitions = wanted.setdefault(topic.name, {})
            if partition.partition_index in partitions:
                duplicates.add((topic.name, partition.partition_index))
            partitions[partition.partition_index] = partition
    return wanted, duplicates


def _refused(index: int, code: int) -> Fields:
    return {
        "partition_index": index,
        "error_code": code,
        "timestamp": -1,
        "offset": -1,
        "leader_epoch": -1,
    }


def _list_offset(
    context: Context, request: Any, topic: str, asked: Any, answer: Fields
) -> list[Deferred[None]]:
    """Fills in the answer, at once or when the search that it returns is done."""
    timestamp = asked.timestamp
    if timestamp < 0 and SPEC_SINCE_VERSION.get(timestamp, 99) > context.api_version:
        answer["error_code"] = UNSUPPORTED_VERSION
        return []
    find = find_replica if request.replica_id == DEBUGGING_CONSUMER else find_leader
    partition = find(context.services, topic, asked.partition_index, asked.current_leader_epoch)
    if isinstance(partition, int):
        answer["error_code"] = partition
        return []
    log = partition.log
    if log is None:
        answer["error_code"] = KAFKA_STORAGE_ERROR
        return []
    end = _readable_end(partition, log, request)
    known = _known(partition, log, timestamp, end)
    if known is not None:
        _tell(context, request, partition, timestamp, known, answer)
        return []
    done: Deferred[None] = Deferred()

    def searched(outcome: Deferred[Found | None]) -> None:
        try:
            found = outcome.result() or NOTHING
            _tell(context, request, partition, timestamp, found, answer)
        except ProtocolError as refused:  # a batch that can not be read
            answer["error_code"] = refused.code
        except StorageError as failure:
            context.services.storage_failed(failure)
            answer["error_code"] = KAFKA_STORAGE_ERROR
        done.resolve(None)

    _search(context, log, timestamp, end).when_done(searched)
    return [done]


def _search(
    context: Context, log: PartitionLog, timestamp: int, end: int
) -> Deferred[Found | None]:
    """By time, which may have to wait for the disk: in the pool."""
    failed: Deferred[Found | None] = Deferred()
    try:
        times = log.times()
        is_latest = timestamp == MAX_TIMESTAMP
        search = times.latest(end) if is_latest else times.first_since(timestamp, end)
    except StorageError as failure:
        failed.fail(failure)
        return failed
    return context.services.pool.run(search.run)


def _tell(
    context: Context,
    request: Any,
    partition: Partition,
    timestamp: int,
    found: Found,
    answer: Fields,
) -> None:
    if _hides_the_end(partition, request, timestamp, found):
        # The new leader's watermark is behind its epoch's start: an older end would be told (R5).
        is_known = context.api_version >= OFFSET_NOT_AVAILABLE_FROM
        answer["error_code"] = OFFSET_NOT_AVAILABLE if is_known else LEADER_NOT_AVAILABLE
        return
    answer["error_code"] = NONE
    answer["timestamp"], answer["offset"], answer["leader_epoch"] = found


def _readable_end(partition: Partition, log: PartitionLog, request: Any) -> int:
    """Consumers see what is committed; replicas and the debugging consumer all there is."""
    if request.replica_id != CONSUMER:
        return log.log_end_offset
    if request.isolation_level == READ_COMMITTED:
        return partition.last_stable_offset
    return partition.high_watermark


def _hides_the_end(partition: Partition, request: Any, timestamp: int, found: Found) -> bool:
    if request.replica_id != CONSUMER or partition.high_watermark >= partition.epoch_start_offset:
        return False
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return False
    return timestamp == LATEST or found == NOTHING


def _known(partition: Partition, log: PartitionLog, timestamp: int, end: int) -> Found | None:
    """What needs no search."""
    if timestamp == LATEST:
        return (-1, end, partition.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return (-1, log.log_start_offset, _epoch_of_start(partition, log))
    if timestamp in (LAST_TIERED, EARLIEST_PENDING_UPLOAD):
        return NOTHING
    return None


def _epoch_of_start(partition: Partition, log: PartitionLog) -> int:
    epoch = log.leader_epochs.epoch_for_offset(log.log_start_offset)
    if epoch < 0 and log.log_start_offset == log.log_end_offset:
        return partition.leader_epoch  # of the first batch, once there is one
    return epoch
