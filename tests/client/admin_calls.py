"""Topics for the tests, made with a stock client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import confluent_kafka
from confluent_kafka import admin as confluent_admin

kafka_admin: Any = confluent_admin


def create_topic(
    bootstrap: str, name: str, partitions: int, settings: Mapping[str, str] | None = None
) -> None:
    client = kafka_admin.AdminClient({"bootstrap.servers": bootstrap})
    wanted = kafka_admin.NewTopic(name, partitions, 1, config=dict(settings or {}))
    client.create_topics([wanted], operation_timeout=60)[name].result(60)


def committed_offset(bootstrap: str, group: str, topic: str, partition: int) -> int:
    client = kafka_admin.AdminClient({"bootstrap.servers": bootstrap})
    place = confluent_kafka.TopicPartition(topic, partition)
    wanted = confluent_kafka.ConsumerGroupTopicPartitions(group, [place])
    found = client.list_consumer_group_offsets([wanted], require_stable=True)[group].result(60)
    offset: int = found.topic_partitions[0].offset
    return offset
