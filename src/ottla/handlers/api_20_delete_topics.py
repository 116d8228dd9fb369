"""DeleteTopics 1-6: topics go, by name or (v6) by id.

With `delete.topic.enable=false` everything is refused; before v3 there was no code for that.
"""

from __future__ import annotations

from typing import Any

from ottla.base.deferred import Deferred
from ottla.handlers.context import Context
from ottla.handlers.controller_answer import Fields, answer_with, is_too_late
from ottla.handlers.topics_in_parts import delete_topics
from ottla.metadata.controller import DeleteResult, TopicSelection
from ottla.protocol.error_codes import (
    INVALID_REQUEST,
    REQUEST_TIMED_OUT,
    TOPIC_DELETION_DISABLED,
)

API_KEY = 20
VERSIONS = (1, 6)

FIRST_VERSION_WITH_IDS = 6
FIRST_VERSION_WITH_DISABLED_CODE = 3


def handle(context: Context, request: Any) -> Fields | Deferred[Fields]:
    selections = _selections(context.api_version, request)

    def refuse(code: int, message: str | None) -> Fields:
        return _answer(
            [DeleteResult(each.name, each.topic_id, code, message) for each in selections]
        )

    if not context.services.config.get_bool("delete.topic.enable"):
        knows_the_code = context.api_version >= FIRST_VERSION_WITH_DISABLED_CODE
        return refuse(TOPIC_DELETION_DISABLED if knows_the_code else INVALID_REQUEST, None)
    if is_too_late(request, [each for each in selections if each.is_one_of_both()]):
        return refuse(REQUEST_TIMED_OUT, None)
    return answer_with(delete_topics(context, selections), _answer, refuse)


def _selections(version: int, request: Any) -> list[TopicSelection]:
    if version < FIRST_VERSION_WITH_IDS:
        return [TopicSelection(name) for name in request.topic_names]
    return [TopicSelection(topic.name, topic.topic_id) for topic in request.topics]


def _answer(results: list[DeleteResult]) -> Fields:
    return {
        "throttle_time_ms": 0,
        "responses": [
            {
                "name": result.name,
                "topic_id": result.topic_id,
                "error_code": result.error_code,
                "error_message": result.error_message,
            }
            for result in results
        ],
    }
