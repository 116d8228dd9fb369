"""What an admin client takes and gives: plain values under Kafka's words."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ottla.base.ids import TopicPartition
from ottla.client.cluster import Broker

TOPIC = "topic"
BROKER = "broker"
GROUP = "group"
CLIENT_METRICS = "client-metrics"
BROKER_LOGGER = "broker-logger"
RESOURCE_CODES = {TOPIC: 2, BROKER: 4, BROKER_LOGGER: 8, CLIENT_METRICS: 16, GROUP: 32}
"""Kinds of things that have settings, and their numbers on the wire."""

CONFIG_TYPES = {
    1: "BOOLEAN",
    2: "STRING",
    3: "INT",
    4: "SHORT",
    5: "LONG",
    6: "DOUBLE",
    7: "LIST",
    8: "CLASS",
    9: "PASSWORD",
}
SOURCES = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}

EARLIEST = -2
LATEST = -1
MAX_TIMESTAMP = -3
"""Where to look for an offset, instead of a timestamp in milliseconds."""


class NewTopic(NamedTuple):
    """-1: as the broker is set. With an assignment (replicas of each partition) neither counts."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    assignment: Sequence[Sequence[int]] | None = None
    configs: Mapping[str, str] = {}


class PartitionDescription(NamedTuple):
    partition: int
    leader: int | None
    leader_epoch: int
    replicas: list[int]
    in_sync: list[int]
    offline: list[int]


class TopicDescription(NamedTuple):
    name: str
    topic_id: uuid.UUID
    is_internal: bool
    partitions: list[PartitionDescription]


class ConfigSynonym(NamedTuple):
    name: str
    value: str | None
    source: str


class ConfigEntry(NamedTuple):
    name: str
    value: str | None
    source: str
    is_default: bool
    is_read_only: bool
    is_sensitive: bool
    documentation: str | None = None
    type: str = "UNKNOWN"
    synonyms: Sequence[ConfigSynonym] = ()
    """Everywhere it is set, the one that counts first."""


class FoundOffset(NamedTuple):
    offset: int
    timestamp_ms: int
    leader_epoch: int


class GroupListing(NamedTuple):
    group_id: str
    protocol_type: str
    state: str
    kind: str  # "classic", "consumer", ...


class MemberDescription(NamedTuple):
    """`target`: what a KIP-848 group wants it to have; None in classic groups, which have none."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    assignment: list[TopicPartition]
    target: list[TopicPartition] | None


class GroupDescription(NamedTuple):
    group_id: str
    state: str
    kind: str
    protocol_type: str
    assignor: str
    coordinator: int
    members: list[MemberDescription]


class CommittedOffset(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str


class TransactionListing(NamedTuple):
    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


class TransactionDescription(NamedTuple):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_time_ms: int | None
    partitions: list[TopicPartition]
    coordinator: int


class ProducerDescription(NamedTuple):
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start_offset: int | None


class BatchRange(NamedTuple):
    """`aborted`: (producer id, first offset) of the aborted transactions that reach into it."""

    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    aborted: list[tuple[int, int]]
    batches: list[bytes]


class Reassignment(NamedTuple):
    replicas: list[int]
    adding: list[int]
    removing: list[int]


class ReplicaSize(NamedTuple):
    topic: str
    partition: int
    size_bytes: int
    offset_lag: int
    is_future: bool


class LogDirDescription(NamedTuple):
    path: str
    error_code: int
    replicas: list[ReplicaSize]
    total_bytes: int | None
    usable_bytes: int | None


class ClusterDescription(NamedTuple):
    cluster_id: str | None
    controller_id: int | None
    brokers: list[Broker]
