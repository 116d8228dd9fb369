"""DescribeTopicPartitions 0: topics page by page, with the eligible leader replicas (KIP-966).

Topics come sorted by name; no topics asks for all of them. A page holds at most
`max.request.partition.size.limit` partitions; the cursor names the first one that did not fit.
Topics that can not be described do not count towards the limit. A partition without a leader is
no error here, as in Kafka: that nobody leads it is what was asked for.
"""

from __future__ import annotations

from typing import Any

from ottla.handlers import authorized_operations
from ottla.handlers.context import Context
from ottla.handlers.partition_description import (
    code_without_topic,
    describe_partition,
    lost_by,
    reachable_brokers,
)
from ottla.metadata import topic_names
from ottla.metadata.image import TopicImage
from ottla.protocol.error_codes import INVALID_REQUEST, NONE
from ottla.protocol.primitives import NULL_UUID

API_KEY = 75
VERSIONS = (0, 0)

LIMIT_CONFIG = "max.request.partition.size.limit"

Fields = dict[str, Any]


def handle(context: Context, request: Any) -> Fields:
    names = {topic.name for topic in request.topics}
    first_topic, first_partition = "", 0
    if request.cursor is not None:
        first_topic = request.cursor.topic_name
        first_partition = request.cursor.partition_index
        if first_partition < 0 or (names and first_topic not in names):
            return _answer([_refused(topic.name) for topic in request.topics], None)
    image = context.services.image
    page = _Page(context, _limit(context, request))
    for name in sorted(names or image.topics):
        if name < first_topic:
            continue
        if not page.add(name, first_partition if name == first_topic else 0):
            break
    return _answer(page.topics, page.next_cursor)


def _limit(context: Context, request: Any) -> int:
    """At least one partition, or a client that asks for none would never come to an end."""
    asked: int = request.response_partition_limit
    return max(1, min(asked, context.services.config.get_int(LIMIT_CONFIG)))


def _answer(topics: list[Fields], next_cursor: Fields | None) -> Fields:
    return {"throttle_time_ms": 0, "topics": topics, "next_cursor": next_cursor}


def _refused(name: str) -> Fields:
    return _without_partitions(name, INVALID_REQUEST, authorized_operations.NOT_ASKED_FOR)


def _without_partitions(name: str, code: int, operations: int) -> Fields:
    return {
        "error_code": code,
        "name": name,
        "topic_id": NULL_UUID,
        "is_internal": False,
        "partitions": [],
        "topic_authorized_operations": operations,
    }


class _Page:
    def __init__(self, context: Context, limit: int) -> None:
        self.topics: list[Fields] = []
        self.next_cursor: Fields | None = None
        self._context = context
        self._image = context.services.image
        self._reachable = reachable_brokers(context)
        self._left = limit

    def add(self, name: str, first_partition: int) -> bool:
        """Whether there is room for more."""
        if self._left == 0:
            return self._end_before(name, 0)
        topic = self._image.topics.get(name)
        if topic is None:
            self.topics.append(_unknown(name))
            return True
        indexes = sorted(index for index in topic.partitions if index >= first_partition)
        shown = indexes[: self._left]
        self._left -= len(shown)
        self.topics.append(self._describe(topic, shown))
        if len(shown) < len(indexes):
            return self._end_before(name, indexes[len(shown)])
        return True

    def _end_before(self, name: str, index: int) -> bool:
        self.next_cursor = {"topic_name": name, "partition_index": index}
        return False

    def _describe(self, topic: TopicImage, indexes: list[int]) -> Fields:
        partitions = []
        for index in indexes:
            state = topic.partitions[index]
            lost = lost_by(self._context, topic, index)
            described = describe_partition(index, state, self._image, self._reachable, lost)
            partitions.append({**described, "error_code": NONE})
        return {
            "error_code": NONE,
            "name": topic.name,
            "topic_id": topic.topic_id,
            "is_internal": topic.name in topic_names.INTERNAL,
            "partitions": partitions,
            "topic_authorized_operations": authorized_operations.ON_TOPIC,
        }


def _unknown(name: str) -> Fields:
    told = _without_partitions(name, code_without_topic(name), authorized_operations.ON_TOPIC)
    return {**told, "is_internal": name in topic_names.INTERNAL}
