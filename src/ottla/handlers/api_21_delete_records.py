"""DeleteRecords 0-2: move the start of a partition's log forward (v2 flexible).

Offset -1 stands for the high watermark. A partition named twice is done once, by its last mention,
as in Kafka. Internal topics and topics that are only compacted are refused.
"""

from __future__ import annotations

from typing import Any

from ottla.base.errors import ProtocolError, StorageError
from ottla.handlers.context import Context
from ottla.handlers.local_partitions import find_leader, is_known
from ottla.metadata import topic_names
from ottla.protocol.error_codes import (
    INVALID_TOPIC_EXCEPTION,
    KAFKA_STORAGE_ERROR,
    NONE,
    UNKNOWN_TOPIC_OR_PARTITION,
)

API_KEY = 21
VERSIONS = (0, 2)

NO_LOW_WATERMARK = -1

Fields = dict[str, Any]


def handle(context: Context, request: Any) -> Fields:
    wanted: dict[str, dict[int, int]] = {}
    for topic in request.topics:
        for partition in topic.partitions:
            wanted.setdefault(topic.name, {})[partition.partition_index] = partition.offset
    topics = [
        {
            "name": name,
            "partitions": [
                _delete_before(context, name, index, offset) for index, offset in offsets.items()
            ],
        }
        for name, offsets in wanted.items()
    ]
    return {"throttle_time_ms": 0, "topics": topics}


def _delete_before(context: Context, topic: str, index: int, offset: int) -> Fields:
    code, low_watermark = _outcome(context, topic, index, offset)
    return {"partition_index": index, "low_watermark": low_watermark, "error_code": code}


def _outcome(context: Context, topic: str, index: int, offset: int) -> tuple[int, int]:
    services = context.services
    if not is_known(services, topic, index):
        return UNKNOWN_TOPIC_OR_PARTITION, NO_LOW_WATERMARK
    if topic in topic_names.INTERNAL:
        return INVALID_TOPIC_EXCEPTION, NO_LOW_WATERMARK
    partition = find_leader(services, topic, index)
    if isinstance(partition, int):
        return partition, NO_LOW_WATERMARK
    try:
        return NONE, partition.delete_records_before(offset)
    except ProtocolError as refused:
        return refused.code, NO_LOW_WATERMARK
    except StorageError as failure:
        services.storage_failed(failure)
        return KAFKA_STORAGE_ERROR, NO_LOW_WATERMARK
