"""OffsetForLeaderEpoch 2-4: where an epoch ends in this leader's log (KIP-101, KIP-279, KIP-320).

v3 tells a replica from a consumer; v4 flexible. Clients use it to learn whether their position was
truncated away. Epochs that the log does not know answer (-1, -1) without an error.
"""

from __future__ import annotations

from typing import Any

from ottla.handlers.context import Context
from ottla.handlers.local_partitions import find_leader
from ottla.protocol.error_codes import KAFKA_STORAGE_ERROR, NONE

API_KEY = 23
VERSIONS = (2, 4)

Fields = dict[str, Any]


def handle(context: Context, request: Any) -> Fields:
    topics = [
        {
            "topic": topic.topic,
            "partitions": [
                _end_of_epoch(context, topic.topic, asked) for asked in topic.partitions
            ],
        }
        for topic in request.topics
    ]
    return {"throttle_time_ms": 0, "topics": topics}


def _end_of_epoch(context: Context, topic: str, asked: Any) -> Fields:
    partition = find_leader(context.services, topic, asked.partition, asked.current_leader_epoch)
    if isinstance(partition, int):
        return _answer(asked.partition, partition, -1, -1)
    if partition.log is None:
        return _answer(asked.partition, KAFKA_STORAGE_ERROR, -1, -1)
    epoch, end_offset = partition.end_offset_for_epoch(asked.leader_epoch)
    return _answer(asked.partition, NONE, epoch, end_offset)


def _answer(index: int, code: int, epoch: int, end_offset: int) -> Fields:
    return {
        "error_code": code,
        "partition": index,
        "leader_epoch": epoch,
        "end_offset": end_offset,
    }
