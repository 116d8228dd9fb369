"""Topics: list, describe, create, delete, grow; offsets by time; deletion of records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ottla.base.ids import TopicPartition
from ottla.client.admin_base import AdminBase, Fields, PartitionResult, error_or_none, raise_for
from ottla.client.admin_values import (
    FoundOffset,
    NewTopic,
    PartitionDescription,
    TopicDescription,
)
from ottla.client.errors import BrokerError
from ottla.protocol import error_codes as codes
from ottla.protocol.api_keys import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    LIST_OFFSETS,
    METADATA,
)
from ottla.protocol.primitives import NULL_UUID


class AdminTopics(AdminBase):
    async def list_topics(self) -> list[TopicDescription]:
        """All that this client may see, sorted by name."""
        answer = await self._ask_any(METADATA, _metadata_fields(None), "list of topics")
        found = [_described(one) for one in answer.topics if one.error_code == codes.NONE]
        return sorted(found, key=lambda topic: topic.name)

    async def describe_topics(self, names: Sequence[str]) -> list[TopicDescription]:
        """In the order asked for; raises for one that does not exist."""
        answer = await self._ask_any(METADATA, _metadata_fields(names), "topics")
        by_name = {one.name: one for one in answer.topics}
        for name in names:
            code = by_name[name].error_code if name in by_name else codes.UNKNOWN_TOPIC_OR_PARTITION
            raise_for(code, f"topic {name}")
        return [_described(by_name[name]) for name in names]

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> dict[str, BrokerError | None]:
        """Why each could not be made, or None where it was."""
        answer = await self._ask_controller(
            CREATE_TOPICS,
            {
                "topics": [_new_topic(topic) for topic in topics],
                "timeout_ms": self._settings.request_timeout_ms,
                "validate_only": validate_only,
            },
            "creation of topics",
            _first_of_topics,
        )
        return {
            one.name: error_or_none(one.error_code, f"topic {one.name}", one.error_message)
            for one in answer.topics
        }

    async def create_topic(
        self,
        name: str,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        topic = NewTopic(name, partitions, replication_factor, None, configs or {})
        error = (await self.create_topics([topic]))[name]
        if error is not None:
            raise error

    async def delete_topics(self, names: Sequence[str]) -> dict[str, BrokerError | None]:
        fields = {
            "topics": [{"name": name, "topic_id": NULL_UUID} for name in names],
            "topic_names": list(names),
            "timeout_ms": self._settings.request_timeout_ms,
        }
        answer = await self._ask_controller(
            DELETE_TOPICS, fields, "deletion of topics", _first_of_responses
        )
        for name in names:
            self._core.metadata.drop(name)
        return {
            one.name: error_or_none(one.error_code, f"topic {one.name}", one.error_message)
            for one in answer.responses
        }

    async def delete_topic(self, name: str) -> None:
        error = (await self.delete_topics([name]))[name]
        if error is not None:
            raise error

    async def create_partitions(
        self, topic: str, count: int, assignment: Sequence[Sequence[int]] | None = None
    ) -> None:
        """Makes it `count` partitions in all."""
        assignments = (
            None
            if assignment is None
            else [{"broker_ids": list(replicas)} for replicas in assignment]
        )
        answer = await self._ask_controller(
            CREATE_PARTITIONS,
            {
                "topics": [{"name": topic, "count": count, "assignments": assignments}],
                "timeout_ms": self._settings.request_timeout_ms,
                "validate_only": False,
            },
            "growing topics",
            _first_of_results,
        )
        one = answer.results[0]
        raise_for(one.error_code, f"topic {topic}", one.error_message)

    async def list_offsets(
        self,
        wanted: Mapping[TopicPartition, int],
        *,
        committed: bool = False,
        patience_s: float | None = None,
    ) -> dict[TopicPartition, FoundOffset | None]:
        """By timestamp, or EARLIEST, LATEST, MAX_TIMESTAMP; None where no record is so young.

        With `patience_s`, partitions whose leaders cannot tell for that long are left out."""

        def fields_of(some: Mapping[TopicPartition, int]) -> Fields:
            topics: dict[str, list[Fields]] = {}
            for (topic, partition), timestamp in some.items():
                topics.setdefault(topic, []).append(
                    {
                        "partition_index": partition,
                        "current_leader_epoch": -1,
                        "timestamp": timestamp,
                    }
                )
            return {
                "replica_id": -1,
                "isolation_level": 1 if committed else 0,
                "topics": [{"name": name, "partitions": each} for name, each in topics.items()],
                "timeout_ms": self._settings.request_timeout_ms,
            }

        def results_of(answer: Any) -> dict[TopicPartition, PartitionResult]:
            return {
                (topic.name, one.partition_index): (
                    one.error_code,
                    None,
                    FoundOffset(one.offset, one.timestamp, one.leader_epoch)
                    if one.offset >= 0
                    else None,
                )
                for topic in answer.topics
                for one in topic.partitions
            }

        return await self._ask_leaders(
            LIST_OFFSETS, wanted, fields_of, results_of, "offsets", patience_s
        )

    async def delete_records(
        self, before: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Deletes what lies before each offset (-1: all); gives the earliest that is left."""

        def fields_of(some: Mapping[TopicPartition, int]) -> Fields:
            topics: dict[str, list[Fields]] = {}
            for (topic, partition), offset in some.items():
                topics.setdefault(topic, []).append(
                    {"partition_index": partition, "offset": offset}
                )
            return {
                "topics": [{"name": name, "partitions": each} for name, each in topics.items()],
                "timeout_ms": self._settings.request_timeout_ms,
            }

        def results_of(answer: Any) -> dict[TopicPartition, PartitionResult]:
            return {
                (topic.name, one.partition_index): (one.error_code, None, one.low_watermark)
                for topic in answer.topics
                for one in topic.partitions
            }

        return await self._ask_leaders(
            DELETE_RECORDS, before, fields_of, results_of, "deletion of records"
        )


def _metadata_fields(names: Sequence[str] | None) -> Fields:
    named = None if names is None else [{"topic_id": NULL_UUID, "name": name} for name in names]
    return {
        "topics": named,
        "allow_auto_topic_creation": False,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }


def _described(one: Any) -> TopicDescription:
    return TopicDescription(
        one.name,
        one.topic_id or NULL_UUID,
        one.is_internal,
        [
            PartitionDescription(
                each.partition_index,
                None if each.leader_id < 0 else each.leader_id,
                each.leader_epoch,
                each.replica_nodes,
                each.isr_nodes,
                each.offline_replicas or [],
            )
            for each in sorted(one.partitions, key=lambda found: int(found.partition_index))
        ],
    )


def _new_topic(topic: NewTopic) -> Fields:
    assignments = [
        {"partition_index": index, "broker_ids": list(replicas)}
        for index, replicas in enumerate(topic.assignment or ())
    ]
    return {
        "name": topic.name,
        "num_partitions": -1 if assignments else topic.partitions,
        "replication_factor": -1 if assignments else topic.replication_factor,
        "assignments": assignments,
        "configs": [{"name": name, "value": value} for name, value in topic.configs.items()],
    }


def _first_of_topics(answer: Any) -> int:
    """Only where all say the same: what worked must not be tried again."""
    return _same([one.error_code for one in answer.topics])


def _first_of_responses(answer: Any) -> int:
    return _same([one.error_code for one in answer.responses])


def _first_of_results(answer: Any) -> int:
    return _same([one.error_code for one in answer.results])


def _same(found: list[int]) -> int:
    return found[0] if found and found.count(found[0]) == len(found) else codes.NONE
