"""ListOffsets 1-11: where a partition starts and ends, and where a moment in time lies in it.

v2 isolation level; v4 leader epochs; v6 flexible; v7 the newest timestamp; v8 earliest local;
v9 last tiered; v10 a time-out (for remote storage, without effect here); v11 earliest pending
upload. Nothing is tiered here: the local log is the whole log.
"""

from __future__ import annotations

from typing import Any

from ottla.base.errors import StorageError
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

Fields = dict[str, Any]
Found = tuple[int, int, int]
"""Timestamp, offset, leader epoch."""

NOTHING: Found = (-1, -1, -1)


def handle(context: Context, request: Any) -> Fields:
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        # Kafka fails on the unknown value as a whole and tells each partition so.
        return _answer([_all_refused(topic) for topic in request.topics])
    wanted, duplicates = _once_each(request)
    topics = []
    for name, partitions in wanted.items():
        answers = [
            _refused(index, INVALID_REQUEST)
            if (name, index) in duplicates
            else _list_offset(context, request, name, partition)
            for index, partition in partitions.items()
        ]
        topics.append({"name": name, "partitions": answers})
    return _answer(topics)


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


def _list_offset(context: Context, request: Any, topic: str, asked: Any) -> Fields:
    index = asked.partition_index
    timestamp = asked.timestamp
    if timestamp < 0 and SPEC_SINCE_VERSION.get(timestamp, 99) > context.api_version:
        return _refused(index, UNSUPPORTED_VERSION)
    find = find_replica if request.replica_id == DEBUGGING_CONSUMER else find_leader
    partition = find(context.services, topic, index, asked.current_leader_epoch)
    if isinstance(partition, int):
        return _refused(index, partition)
    log = partition.log
    if log is None:
        return _refused(index, KAFKA_STORAGE_ERROR)
    try:
        found = _look_up(partition, log, timestamp, _readable_end(partition, log, request))
    except StorageError as failure:
        context.services.storage_failed(failure)
        return _refused(index, KAFKA_STORAGE_ERROR)
    if _hides_the_end(partition, request, timestamp, found):
        # The new leader's watermark is behind its epoch's start: an older end would be told (R5).
        code = OFFSET_NOT_AVAILABLE if context.api_version >= 5 else LEADER_NOT_AVAILABLE
        return _refused(index, code)
    return {
        "partition_index": index,
        "error_code": NONE,
        "timestamp": found[0],
        "offset": found[1],
        "leader_epoch": found[2],
    }


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


def _look_up(partition: Partition, log: PartitionLog, timestamp: int, end: int) -> Found:
    if timestamp == LATEST:
        return (-1, end, partition.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return (-1, log.log_start_offset, _epoch_of_start(partition, log))
    if timestamp in (LAST_TIERED, EARLIEST_PENDING_UPLOAD):
        return NOTHING
    if timestamp == MAX_TIMESTAMP:
        return log.max_timestamp(end) or NOTHING
    return log.offset_for_time(timestamp, end) or NOTHING


def _epoch_of_start(partition: Partition, log: PartitionLog) -> int:
    epoch = log.leader_epochs.epoch_for_offset(log.log_start_offset)
    if epoch < 0 and log.log_start_offset == log.log_end_offset:
        return partition.leader_epoch  # of the first batch, once there is one
    return epoch
