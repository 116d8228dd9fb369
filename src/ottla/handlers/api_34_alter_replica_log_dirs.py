"""AlterReplicaLogDirs 1-2: which log dir of this broker a replica is in; a move is refused.

v2 flexible. A replica that is asked to be where it is already stays there. Moving one is not built:
UNSUPPORTED_VERSION tells that this broker can not do it. The last mention of a partition counts.
"""

from __future__ import annotations

from typing import Any

from ottla.handlers.context import Context
from ottla.handlers.local_partitions import is_known
from ottla.protocol.error_codes import (
    KAFKA_STORAGE_ERROR,
    LOG_DIR_NOT_FOUND,
    NONE,
    REPLICA_NOT_AVAILABLE,
    UNKNOWN_TOPIC_OR_PARTITION,
    UNSUPPORTED_VERSION,
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
    target = next((each for each in services.partitions.log_dirs() if each.path == path), None)
    if target is None:
        return LOG_DIR_NOT_FOUND
    if target.error is not None:
        return KAFKA_STORAGE_ERROR
    if not is_known(services, topic, index):
        return UNKNOWN_TOPIC_OR_PARTITION
    partition = services.partitions.find(topic, index)
    if partition is None:
        return REPLICA_NOT_AVAILABLE
    if partition.log is None:
        return KAFKA_STORAGE_ERROR
    return NONE if partition.log_dir == path else UNSUPPORTED_VERSION
