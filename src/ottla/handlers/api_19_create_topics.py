"""CreateTopics 2-7: new topics, each accepted or refused on its own.

v4 lets the counts default, v5 answers with the settings that the topic got, v7 with its id.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.base.deferred import Deferred
from ottla.handlers.context import Context
from ottla.handlers.controller_answer import Fields, answer_with, is_too_late
from ottla.handlers.topics_in_parts import create_topics
from ottla.metadata.configs.alter import validate_topic_configs
from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.metadata.configs.describe import describe_topic
from ottla.metadata.controller import (
    CreateResult,
    Decision,
    NewTopic,
    TopicDefaults,
    decide_create_topics,
)
from ottla.metadata.image import MetadataImage
from ottla.protocol.error_codes import NONE, REQUEST_TIMED_OUT

API_KEY = 19
VERSIONS = (2, 7)


def handle(context: Context, request: Any) -> Fields | Deferred[Fields]:
    services = context.services
    topics = [_new_topic(topic) for topic in request.topics]
    defaults = TopicDefaults(
        services.config.get_int("num.partitions"),
        services.config.get_int("default.replication.factor"),
    )

    def decide(image: MetadataImage, part: Sequence[NewTopic]) -> Decision[list[CreateResult]]:
        return decide_create_topics(
            image,
            part,
            defaults=defaults,
            check_configs=validate_topic_configs,
            new_uuid=services.new_uuid,
            validate_only=request.validate_only,
        )

    def respond(results: list[CreateResult]) -> Fields:
        # Thousands of topics that are made alike are described once.
        known: dict[frozenset[tuple[str, str]], list[Fields]] = {}
        return {
            "throttle_time_ms": 0,
            "topics": [_result(result, services.config, known) for result in results],
        }

    def refuse(code: int, message: str | None) -> Fields:
        return respond([CreateResult(topic.name, code, message) for topic in topics])

    if is_too_late(request, [topic.name for topic in topics]):
        return refuse(REQUEST_TIMED_OUT, None)
    made = create_topics(context, topics, defaults, decide, validate_only=request.validate_only)
    return answer_with(made, respond, refuse)


def _new_topic(topic: Any) -> NewTopic:
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        [(item.partition_index, item.broker_ids) for item in topic.assignments],
        [(config.name, config.value) for config in topic.configs],
    )


def _result(
    result: CreateResult,
    config: BrokerConfig,
    known: dict[frozenset[tuple[str, str]], list[Fields]],
) -> Fields:
    configs: list[Fields] = []
    if result.error_code == NONE:
        key = frozenset(result.configs.items())
        configs = known.get(key) or known.setdefault(key, _configs(result, config))
    return {
        "name": result.name,
        "topic_id": result.topic_id,
        "error_code": result.error_code,
        "error_message": result.error_message,
        "topic_config_error_code": NONE,
        "num_partitions": result.partition_count,
        "replication_factor": result.replication_factor,
        "configs": configs,
    }


def _configs(result: CreateResult, config: BrokerConfig) -> list[Fields]:
    return [
        {
            "name": described.name,
            # What the client set is told as it was written; a description tells how it is read.
            "value": result.configs.get(described.name, described.value),
            "read_only": described.read_only,
            "config_source": described.config_source,
            "is_sensitive": described.is_sensitive,
        }
        for described in describe_topic(config, result.configs)
    ]
