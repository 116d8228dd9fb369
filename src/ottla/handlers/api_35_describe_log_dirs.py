"""DescribeLogDirs 1-5: what lies in each log dir, how large, and how far behind.

v2 flexible; v3 an error for the whole; v4 sizes of the volume; v5 cordoned dirs, which do not exist
here. Topics null asks for all, [] for none. A replica that moves is told twice: where it is, and as
a future one where it goes, with the offsets that are not there yet as its lag.
"""

from __future__ import annotations

from typing import Any

from ottla.handlers.context import Context, FutureReplica, LogDirState
from ottla.log.partition_log import PartitionLog
from ottla.protocol.error_codes import KAFKA_STORAGE_ERROR, NONE

API_KEY = 35
VERSIONS = (1, 5)

UNKNOWN_BYTES = -1

Fields = dict[str, Any]


def handle(context: Context, request: Any) -> Fields:
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    results = [
        _describe(context, log_dir, wanted) for log_dir in context.services.partitions.log_dirs()
    ]
    return {"throttle_time_ms": 0, "error_code": NONE, "results": results}


def _describe(
    context: Context, log_dir: LogDirState, wanted: set[tuple[str, int]] | None
) -> Fields:
    if log_dir.error is not None:
        return _log_dir(log_dir.path, KAFKA_STORAGE_ERROR, [], UNKNOWN_BYTES, UNKNOWN_BYTES)
    topics: dict[str, list[Fields]] = {}
    for log in context.services.partitions.logs_of(log_dir.path):
        if wanted is None or (log.topic, log.partition) in wanted:
            topics.setdefault(log.topic, []).append(_replica(context, log))
    for future in context.services.partitions.futures_of(log_dir.path):
        if wanted is None or (future.topic, future.partition) in wanted:
            topics.setdefault(future.topic, []).append(_future(future))
    listed = [{"name": name, "partitions": replicas} for name, replicas in topics.items()]
    return _log_dir(log_dir.path, NONE, listed, log_dir.total_bytes, log_dir.usable_bytes)


def _log_dir(path: str, code: int, topics: list[Fields], total: int, usable: int) -> Fields:
    return {
        "error_code": code,
        "log_dir": path,
        "topics": topics,
        "total_bytes": total,
        "usable_bytes": usable,
        "is_cordoned": False,
    }


def _replica(context: Context, log: PartitionLog) -> Fields:
    partition = context.services.partitions.find(log.topic, log.partition)
    committed = 0
    if partition is not None:
        committed = partition.high_watermark if partition.is_leader else partition.leader_watermark
    return {
        "partition_index": log.partition,
        "partition_size": log.size,
        "offset_lag": max(0, committed - log.log_end_offset),
        "is_future_key": False,
    }


def _future(replica: FutureReplica) -> Fields:
    return {
        "partition_index": replica.partition,
        "partition_size": replica.size,
        "offset_lag": replica.offset_lag,
        "is_future_key": True,
    }
