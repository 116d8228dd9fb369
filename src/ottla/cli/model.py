"""Plain values between the commands and the client underneath.

The commands know these and nothing of the client library, so that ours can replace it behind
`connection` without a change anywhere else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ottla.base.ids import TopicPartition

Headers = Sequence[tuple[str, bytes | None]]


@dataclass(slots=True)
class Address:
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(slots=True)
class TopicSummary:
    name: str
    partition_count: int
    replication_factor: int
    internal: bool


@dataclass(slots=True)
class PartitionPlace:
    """Where one partition lives; `leader` is None while it has none, `leader_epoch` where the
    brokers are too old to tell."""

    partition: int
    leader: int | None
    leader_epoch: int | None
    replicas: list[int]
    in_sync: list[int]


@dataclass(slots=True)
class TopicPlace:
    name: str
    topic_id: str
    internal: bool
    partitions: list[PartitionPlace]


@dataclass(slots=True)
class FoundOffset:
    """An offset that a leader named; `leader_epoch` is None where it does not tell."""

    offset: int
    leader_epoch: int | None


@dataclass(slots=True)
class NewTopic:
    """None means the broker's default. `assignment`: the replicas of each partition in turn."""

    name: str
    partition_count: int | None = None
    replication_factor: int | None = None
    assignment: list[list[int]] | None = None
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Setting:
    name: str
    value: str | None
    source: str
    read_only: bool
    sensitive: bool
    is_default: bool
    type: str
    documentation: str | None
    synonyms: list[dict[str, str | None]]


@dataclass(slots=True)
class ReceivedRecord:
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    leader_epoch: int | None


@dataclass(slots=True)
class EndReached:
    """Nothing more to read in this partition for now; `offset` is where more would come."""

    partition: TopicPartition
    offset: int


@dataclass(slots=True)
class RecordToSend:
    """`partition` None: chosen by the key, as the Java client does; `timestamp_ms` None: now."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None


@dataclass(slots=True)
class SenderSettings:
    compression: str = "none"
    acks: str = "all"
    timeout_ms: int = 30_000
