"""AlterReplicaLogDirs 1-2: to which log dir of this broker a replica is to move.

v2 flexible. The answer comes when the move has begun; DescribeLogDirs tells how far it is. To ask
for the log dir where the replica is ends a move elsewhere. A replica that is not here yet will be
made where it was asked for, although the answer is an error, as with Kafka. The last mention of a
partition counts.
"""

from __future__ import annotations

from typing import Any

from ottla.handlers.context import Context
from ottla.handlers.local_partitions import is_known
from ottla.log.log_dir import has_room_for_move
from ottla.protocol.error_codes import (
    INVALID_TOPIC_EXCEPTION,
    KAFKA_STORAGE_ERROR,
    LOG_DIR_NOT_FOUND,
    NONE,
    REPLICA_NOT_AVAILABLE,
    UNKNOWN_TOPIC_OR_PARTITION,
)

API_KEY = 34
VERSIONS = (1, 2)

Fields = dict[str, Any]


def handle(context: Context, request: Any) -> Fields:
    wanted: dict[str, dict[int, str]] = {}
    for log_dir in request.dirs:
        for topic in log_dir.topics:
            for index in topic.partitions:
                wanted.setdefault(topic.name, {})[index] = log_dir.path
    results = [
        {
            "topic_name": name,
            "partitions": [
                {"partition_index": index, "error_code": _outcome(context, name, index, path)}
                for index, path in paths.items()
            ],
        }
        for name, paths in wanted.items()
    ]
    return {"throttle_time_ms": 0, "results": results}


def _outcome(context: Context, topic: str, index: int, path: str) -> int:
    services = context.services
    if not has_room_for_move(topic, index):
        return INVALID_TOPIC_EXCEPTION
    log_dirs = services.partitions.log_dirs()
    target = next((each for each in log_dirs if each.path == path), None)
    if target is None:
        return LOG_DIR_NOT_FOUND
    if target.error is not None:
        return KAFKA_STORAGE_ERROR
    partition = services.partitions.find(topic, index)
    if partition is None:
        services.partitions.prefer(topic, index, path)
        known = is_known(services, topic, index)
        return REPLICA_NOT_AVAILABLE if known else UNKNOWN_TOPIC_OR_PARTITION
    if partition.log is None:
        return KAFKA_STORAGE_ERROR
    # What is in a log dir that is offline is not known: there may be a replica on its way there.
    if partition.log_dir != path and any(each.error is not None for each in log_dirs):
        return KAFKA_STORAGE_ERROR
    return NONE if services.partitions.move(partition, path) else KAFKA_STORAGE_ERROR
