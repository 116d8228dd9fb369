"""What a client knows about the cluster: brokers, topics, leaders. Updated by Metadata answers.

Owns the rule that news never goes back: a partition's leader is replaced only by one of the same or
a later leader epoch (KIP-320), except where the topic itself is another one (its id changed).

Never asks anybody; `metadata_updates` does.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

from ottla.client.errors import BrokerError
from ottla.protocol.error_codes import INVALID_TOPIC_EXCEPTION, NONE
from ottla.protocol.primitives import NULL_UUID

NO_LEADER = -1
_TOPIC_LENGTH_MAX = 249


def check_topic_name(name: object) -> None:
    """Refuses what no broker could be asked about; the others know what they call legal."""
    if not isinstance(name, str):
        raise TypeError(f"a topic has a name (text), not {type(name).__name__}")
    if not 0 < len(name) <= _TOPIC_LENGTH_MAX or not name.isascii():
        raise BrokerError(
            INVALID_TOPIC_EXCEPTION,
            f"topic {name[:40]!r}",
            f"1 to {_TOPIC_LENGTH_MAX} letters, digits, '.', '_' and '-' are allowed",
        )


class Broker:
    __slots__ = ("host", "node_id", "port", "rack")

    def __init__(self, node_id: int, host: str, port: int, rack: str | None = None) -> None:
        self.node_id = node_id
        self.host = host
        self.port = port
        self.rack = rack

    def __repr__(self) -> str:
        return f"Broker({self.node_id}, {self.host}:{self.port})"


class PartitionInfo:
    __slots__ = ("in_sync", "leader", "leader_epoch", "offline", "partition", "replicas")

    def __init__(
        self,
        partition: int,
        leader: int,
        leader_epoch: int,
        replicas: list[int],
        in_sync: list[int],
        offline: list[int],
    ) -> None:
        self.partition = partition
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.replicas = replicas
        self.in_sync = in_sync
        self.offline = offline


class TopicInfo:
    """`partitions[i]` is partition i; `error_code` is not NONE where there is nothing to know."""

    __slots__ = ("error_code", "has_id", "is_internal", "name", "partitions", "topic_id")

    def __init__(
        self,
        name: str,
        topic_id: uuid.UUID,
        partitions: list[PartitionInfo],
        is_internal: bool,
        error_code: int = NONE,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.has_id = topic_id != NULL_UUID  # older brokers know none
        self.partitions = partitions
        self.is_internal = is_internal
        self.error_code = error_code


class Cluster:
    __slots__ = ("brokers", "cluster_id", "controller_id", "names_by_id", "topics", "version")

    def __init__(self) -> None:
        self.version = 0  # goes up with every update
        self.cluster_id: str | None = None
        self.controller_id = NO_LEADER
        self.brokers: dict[int, Broker] = {}
        self.topics: dict[str, TopicInfo] = {}
        self.names_by_id: dict[uuid.UUID, str] = {}

    def leader_of(self, topic: str, partition: int) -> int:
        """The node id, or NO_LEADER where none is known."""
        info = self.topics.get(topic)
        if info is None or partition >= len(info.partitions):
            return NO_LEADER
        return info.partitions[partition].leader

    def leader_epoch_of(self, topic: str, partition: int) -> int:
        info = self.topics.get(topic)
        if info is None or partition >= len(info.partitions):
            return -1
        return info.partitions[partition].leader_epoch

    def partition_count(self, topic: str) -> int | None:
        """None where the topic is not known (yet)."""
        info = self.topics.get(topic)
        return None if info is None or info.error_code != NONE else len(info.partitions)

    def update(self, answer: Any, *, all_topics: bool) -> None:
        """A decoded Metadata answer; `all_topics`: what it does not name is no more."""
        self.version += 1
        if answer.brokers:
            self.brokers = {
                one.node_id: Broker(one.node_id, one.host, one.port, one.rack)
                for one in answer.brokers
            }
        self.cluster_id = answer.cluster_id or self.cluster_id
        self.controller_id = answer.controller_id
        if all_topics:
            named = {one.name for one in answer.topics}
            self.forget(name for name in list(self.topics) if name not in named)
        for one in answer.topics:
            if one.name is not None:
                self._update_topic(one)

    def _update_topic(self, one: Any) -> None:
        known = self.topics.get(one.name)
        topic_id = one.topic_id or NULL_UUID
        if one.error_code != NONE:
            if known is None or not known.partitions:
                self.topics[one.name] = TopicInfo(
                    one.name, topic_id, [], one.is_internal, one.error_code
                )
            else:
                # What was known stays: an error may pass, and a leader that is gone says so itself.
                known.error_code = one.error_code
            return
        partitions = [
            PartitionInfo(
                index.partition_index,
                index.leader_id,
                index.leader_epoch,
                index.replica_nodes,
                index.isr_nodes,
                index.offline_replicas or [],
            )
            for index in sorted(one.partitions, key=lambda found: found.partition_index)
        ]
        if known is not None and known.topic_id == topic_id:
            _keep_newer(known.partitions, partitions)
        elif known is not None:
            self.names_by_id.pop(known.topic_id, None)
        self.topics[one.name] = TopicInfo(one.name, topic_id, partitions, one.is_internal)
        if topic_id != NULL_UUID:
            self.names_by_id[topic_id] = one.name

    def learn_leader(self, topic: str, partition: int, leader: int, leader_epoch: int) -> bool:
        """A leader named in a Produce or Fetch answer (KIP-951); whether it was news."""
        info = self.topics.get(topic)
        if info is None or partition >= len(info.partitions):
            return False
        known = info.partitions[partition]
        if leader_epoch <= known.leader_epoch or leader not in self.brokers:
            return False
        known.leader, known.leader_epoch = leader, leader_epoch
        self.version += 1
        return True

    def forget(self, topics: Iterable[str]) -> None:
        for name in topics:
            info = self.topics.pop(name, None)
            if info is not None:
                self.names_by_id.pop(info.topic_id, None)


def _keep_newer(known: list[PartitionInfo], found: list[PartitionInfo]) -> None:
    """An answer from a broker that lags behind must not bring back an old leader."""
    for old, new in zip(known, found, strict=False):
        if -1 < new.leader_epoch < old.leader_epoch:
            new.leader, new.leader_epoch = old.leader, old.leader_epoch
