"""DescribeQuorum 0-2: who keeps the cluster's metadata (v1 timestamps, v2 endpoints and reasons).

There is no Raft quorum here. The controller stands for it: one voter, whose log is the sequence of
metadata changes. So `kafka-metadata-quorum describe` tells who the controller is, in which epoch.
A request must ask for partition 0 of `__cluster_metadata` and nothing else, as in Kafka.
"""

from __future__ import annotations

from typing import Any

from ottla.handlers.context import Context
from ottla.protocol.error_codes import NONE, UNKNOWN_TOPIC_OR_PARTITION, message_of
from ottla.protocol.primitives import NULL_UUID

API_KEY = 55
VERSIONS = (0, 2)

METADATA_TOPIC = "__cluster_metadata"

Fields = dict[str, Any]


def handle(context: Context, request: Any) -> Fields:
    asked = [
        (topic.topic_name, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
    ]
    if asked == [(METADATA_TOPIC, 0)]:
        topics = [{"topic_name": METADATA_TOPIC, "partitions": [_quorum(context)]}]
        return _answer(topics, _nodes(context))
    return _answer([_refused(topic) for topic in request.topics], [])


def _answer(topics: list[Fields], nodes: list[Fields]) -> Fields:
    return {"error_code": NONE, "error_message": "", "topics": topics, "nodes": nodes}


def _quorum(context: Context) -> Fields:
    image = context.services.image
    log_end_offset = image.last_change + 1
    now_ms = context.services.clock.wall_ms()
    voter = {
        "replica_id": image.controller_id,
        "replica_directory_id": NULL_UUID,
        "log_end_offset": log_end_offset,
        "last_fetch_timestamp": now_ms,
        "last_caught_up_timestamp": now_ms,
    }
    return {
        "partition_index": 0,
        "error_code": NONE,
        "error_message": "",
        "leader_id": image.controller_id,
        "leader_epoch": image.controller_epoch,
        "high_watermark": log_end_offset,
        "current_voters": [voter],
        "observers": [],
    }


def _nodes(context: Context) -> list[Fields]:
    image = context.services.image
    controller = image.brokers.get(image.controller_id)
    if controller is None:
        return []
    listeners = [
        {"name": name, "host": host, "port": port}
        for name, (host, port) in controller.endpoints.items()
    ]
    return [{"node_id": controller.broker_id, "listeners": listeners}]


def _refused(topic: Any) -> Fields:
    partitions = [
        {
            "partition_index": partition.partition_index,
            "error_code": UNKNOWN_TOPIC_OR_PARTITION,
            "error_message": message_of(UNKNOWN_TOPIC_OR_PARTITION),
            "leader_id": 0,
            "leader_epoch": 0,
            "high_watermark": 0,
            "current_voters": [],
            "observers": [],
        }
        for partition in topic.partitions
    ]
    return {"topic_name": topic.topic_name, "partitions": partitions}
