"""CreatePartitions 0-3: more partitions for topics that there are; never fewer."""

from __future__ import annotations

from typing import Any

from ottla.base.deferred import Deferred
from ottla.handlers.context import Context
from ottla.handlers.controller_answer import Fields, answer_with, is_too_late
from ottla.handlers.topics_in_parts import create_partitions
from ottla.metadata.controller import (
    MorePartitions,
    NamedResult,
)
from ottla.protocol.error_codes import REQUEST_TIMED_OUT

API_KEY = 37
VERSIONS = (0, 3)


def handle(context: Context, request: Any) -> Fields | Deferred[Fields]:
    topics = [MorePartitions(each.name, each.count, _assignments(each)) for each in request.topics]

    def refuse(code: int, message: str | None) -> Fields:
        return _answer([NamedResult(topic.name, code, message) for topic in topics])

    if is_too_late(request, [topic.name for topic in topics]):
        return refuse(REQUEST_TIMED_OUT, None)
    asked = create_partitions(context, topics, validate_only=request.validate_only)
    return answer_with(asked, _answer, refuse)


def _assignments(topic: Any) -> list[list[int]] | None:
    if topic.assignments is None:
        return None
    return [assignment.broker_ids for assignment in topic.assignments]


def _answer(results: list[NamedResult]) -> Fields:
    return {
        "throttle_time_ms": 0,
        "results": [
            {
                "name": result.name,
                "error_code": result.error_code,
                "error_message": result.error_message,
            }
            for result in results
        ],
    }
