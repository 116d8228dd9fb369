"""AlterPartitionReassignments 0-1: moves partitions to other brokers, or stops a move (KIP-455).

v1 lets the client forbid that the number of replicas changes (KIP-860).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.base.deferred import Deferred
from ottla.handlers.context import Context
from ottla.handlers.controller_answer import Fields, ask_in_parts, is_too_late, topic_settings
from ottla.metadata.controller import (
    Decision,
    PartitionResult,
    Reassignment,
    decide_alter_reassignments,
)
from ottla.metadata.image import MetadataImage
from ottla.protocol.error_codes import NONE, REQUEST_TIMED_OUT

API_KEY = 45
VERSIONS = (0, 1)


def handle(context: Context, request: Any) -> Fields | Deferred[Fields]:
    moves = [
        Reassignment(topic.name, partition.partition_index, partition.replicas)
        for topic in request.topics
        for partition in topic.partitions
    ]

    def decide(
        image: MetadataImage, part: Sequence[Reassignment]
    ) -> Decision[list[PartitionResult]]:
        return decide_alter_reassignments(
            image,
            part,
            topic_settings(context, image),
            allow_factor_change=request.allow_replication_factor_change,
        )

    def respond(results: list[PartitionResult]) -> Fields:
        # An empty request is answered with an empty message and not with none, as Kafka does.
        return _answer(request, NONE, None if request.topics else "", results)

    def refuse(code: int, message: str | None) -> Fields:
        results = [PartitionResult(move.topic, move.partition, code, message) for move in moves]
        return _answer(request, code, message, results)

    if is_too_late(request, {(move.topic, move.partition) for move in moves}):
        return refuse(REQUEST_TIMED_OUT, None)
    return ask_in_parts(context, moves, decide, respond, refuse)


def _answer(request: Any, code: int, message: str | None, results: list[PartitionResult]) -> Fields:
    remaining = iter(results)
    return {
        "throttle_time_ms": 0,
        "allow_replication_factor_change": request.allow_replication_factor_change,
        "error_code": code,
        "error_message": message,
        "responses": [
            {
                "name": topic.name,
                "partitions": [_partition(next(remaining)) for _ in topic.partitions],
            }
            for topic in request.topics
        ],
    }


def _partition(result: PartitionResult) -> Fields:
    return {
        "partition_index": result.partition,
        "error_code": result.error_code,
        "error_message": result.error_message,
    }
