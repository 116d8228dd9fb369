"""The cluster itself: brokers, log directories, elections, replicas on their way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ottla.base.ids import TopicPartition
from ottla.client.admin_base import AdminBase, by_topic, error_or_none, raise_for
from ottla.client.admin_values import (
    ClusterDescription,
    LogDirDescription,
    Reassignment,
    ReplicaSize,
)
from ottla.client.cluster import Broker
from ottla.client.errors import BrokerError
from ottla.protocol.api_keys import (
    ALTER_PARTITION_REASSIGNMENTS,
    DESCRIBE_CLUSTER,
    DESCRIBE_LOG_DIRS,
    ELECT_LEADERS,
    LIST_PARTITION_REASSIGNMENTS,
)

_PREFERRED, _UNCLEAN = 0, 1
_BROKERS = 1


class AdminCluster(AdminBase):
    async def describe_cluster(self) -> ClusterDescription:
        fields = {
            "include_cluster_authorized_operations": False,
            "endpoint_type": _BROKERS,
            "include_fenced_brokers": False,
        }
        answer = await self._ask_any(
            DESCRIBE_CLUSTER, fields, "the cluster", lambda answer: int(answer.error_code)
        )
        raise_for(answer.error_code, "the cluster", answer.error_message)
        brokers = [Broker(one.broker_id, one.host, one.port, one.rack) for one in answer.brokers]
        return ClusterDescription(
            answer.cluster_id,
            None if answer.controller_id < 0 else answer.controller_id,
            sorted(brokers, key=lambda broker: broker.node_id),
        )

    async def describe_log_dirs(
        self, node_ids: Sequence[int] | None = None
    ) -> dict[int, list[LogDirDescription]]:
        """What each broker keeps where, and how large it is."""
        answers = await self._ask_brokers(
            DESCRIBE_LOG_DIRS, {"topics": None}, "log directories", node_ids
        )
        for answer in answers.values():
            raise_for(answer.error_code, "log directories")
        return {
            node_id: [_log_dir(one) for one in answer.results]
            for node_id, answer in answers.items()
        }

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None = None, *, unclean: bool = False
    ) -> dict[TopicPartition, BrokerError | None]:
        """Preferred leaders back into office, everywhere or there; ELECTION_NOT_NEEDED is one."""
        topics = None
        if partitions is not None:
            topics = [
                {"topic": name, "partitions": some} for name, some in by_topic(partitions).items()
            ]
        answer = await self._ask_controller(
            ELECT_LEADERS,
            {
                "election_type": _UNCLEAN if unclean else _PREFERRED,
                "topic_partitions": topics,
                "timeout_ms": self._settings.request_timeout_ms,
            },
            "election of leaders",
            lambda answer: int(answer.error_code),
        )
        raise_for(answer.error_code, "election of leaders")
        return {
            (topic.topic, one.partition_id): error_or_none(
                one.error_code, f"{topic.topic}-{one.partition_id}", one.error_message
            )
            for topic in answer.replica_election_results
            for one in topic.partition_result
        }

    async def alter_reassignments(
        self, wanted: Mapping[TopicPartition, Sequence[int] | None]
    ) -> dict[TopicPartition, BrokerError | None]:
        """Begins to move replicas to these brokers; None ends a move that is under way."""
        topics: dict[str, list[Any]] = {}
        for (topic, partition), replicas in wanted.items():
            topics.setdefault(topic, []).append(
                {
                    "partition_index": partition,
                    "replicas": None if replicas is None else list(replicas),
                }
            )
        answer = await self._ask_controller(
            ALTER_PARTITION_REASSIGNMENTS,
            {
                "timeout_ms": self._settings.request_timeout_ms,
                "allow_replication_factor_change": True,
                "topics": [{"name": name, "partitions": some} for name, some in topics.items()],
            },
            "reassignment",
            lambda answer: int(answer.error_code),
        )
        raise_for(answer.error_code, "reassignment", answer.error_message)
        return {
            (topic.name, one.partition_index): error_or_none(
                one.error_code, f"{topic.name}-{one.partition_index}", one.error_message
            )
            for topic in answer.responses
            for one in topic.partitions
        }

    async def list_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """Those under way, everywhere or there."""
        topics = None
        if partitions is not None:
            topics = [
                {"name": name, "partition_indexes": some}
                for name, some in by_topic(partitions).items()
            ]
        answer = await self._ask_controller(
            LIST_PARTITION_REASSIGNMENTS,
            {"timeout_ms": self._settings.request_timeout_ms, "topics": topics},
            "list of reassignments",
            lambda answer: int(answer.error_code),
        )
        raise_for(answer.error_code, "list of reassignments", answer.error_message)
        return {
            (topic.name, one.partition_index): Reassignment(
                one.replicas, one.adding_replicas, one.removing_replicas
            )
            for topic in answer.topics
            for one in topic.partitions
        }


def _log_dir(one: Any) -> LogDirDescription:
    return LogDirDescription(
        one.log_dir,
        one.error_code,
        [
            ReplicaSize(
                topic.name,
                each.partition_index,
                each.partition_size,
                each.offset_lag,
                each.is_future_key,
            )
            for topic in one.topics
            for each in topic.partitions
        ],
        None if one.total_bytes < 0 else one.total_bytes,
        None if one.usable_bytes < 0 else one.usable_bytes,
    )
