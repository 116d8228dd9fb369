"""ElectLeaders 0-2: preferred leaders back in place, or (v1) a leader at any price.

Without a list of partitions every one is meant, and only those that needed an election are told.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.base.deferred import Deferred
from ottla.base.ids import TopicPartition
from ottla.handlers.context import Context
from ottla.handlers.controller_answer import Fields, ask_in_parts, is_too_late, topic_settings
from ottla.metadata.controller import Decision, PartitionResult, decide_elect_leaders
from ottla.metadata.elections import PREFERRED, UNCLEAN, partitions_to_elect
from ottla.metadata.image import MetadataImage
from ottla.protocol.error_codes import INVALID_REQUEST, NONE, REQUEST_TIMED_OUT

API_KEY = 43
VERSIONS = (0, 2)

Results = list[PartitionResult]


def handle(context: Context, request: Any) -> Fields | Deferred[Fields]:
    election_type = request.election_type

    wanted = _wanted(request)
    if wanted is None:
        wanted = partitions_to_elect(context.services.image, election_type)

    def decide(image: MetadataImage, part: Sequence[TopicPartition]) -> Decision[Results]:
        return decide_elect_leaders(image, part, election_type, topic_settings(context, image))

    def respond(results: Results) -> Fields:
        if election_type not in (PREFERRED, UNCLEAN):
            return _answer(INVALID_REQUEST, _as_asked(request, results))
        if request.topic_partitions is None:
            return _answer(NONE, _every_topic(context.services.image, results))
        return _answer(NONE, _as_asked(request, results))

    def refuse(code: int, message: str | None) -> Fields:
        asked = _wanted(request) or []
        results = [PartitionResult(topic, index, code, message) for topic, index in asked]
        return _answer(code, _as_asked(request, results))

    if is_too_late(request, ["every partition"] if _wanted(request) is None else set(wanted)):
        return refuse(REQUEST_TIMED_OUT, None)
    return ask_in_parts(context, wanted, decide, respond, refuse)


def _wanted(request: Any) -> list[TopicPartition] | None:
    if request.topic_partitions is None:
        return None
    return [(each.topic, index) for each in request.topic_partitions for index in each.partitions]


def _as_asked(request: Any, results: Results) -> list[Fields]:
    """Topics as the request has them, the results are in the same order."""
    remaining = iter(results)
    return [
        _topic(each.topic, [next(remaining) for _ in each.partitions])
        for each in request.topic_partitions or ()
    ]


def _every_topic(image: MetadataImage, results: Results) -> list[Fields]:
    by_topic: dict[str, Results] = {name: [] for name in image.topics}
    for result in results:
        by_topic.setdefault(result.topic, []).append(result)
    return [_topic(name, told) for name, told in by_topic.items()]


def _topic(name: str, results: Results) -> Fields:
    return {
        "topic": name,
        "partition_result": [
            {
                "partition_id": result.partition,
                "error_code": result.error_code,
                "error_message": result.error_message,
            }
            for result in results
        ],
    }


def _answer(code: int, topics: list[Fields]) -> Fields:
    return {"throttle_time_ms": 0, "error_code": code, "replica_election_results": topics}
