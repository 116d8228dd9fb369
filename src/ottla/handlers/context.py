"""What a handler may know and ask: the request's surroundings and the broker's services."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

from ottla.base.deferred import Deferred
from ottla.base.errors import StorageError
from ottla.base.ids import TopicPartition
from ottla.base.ports import Clock, Pool, Timers
from ottla.coordinator.group_shard import GroupShard
from ottla.coordinator.shard import Outcome, Transactional
from ottla.coordinator.transaction_asks import EndAsked, InitAsked
from ottla.coordinator.transaction_shard import TransactionShard
from ottla.handlers.reply import Part
from ottla.log.partition_log import PartitionLog
from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.metadata.controller import Decision
from ottla.metadata.image import MetadataImage
from ottla.replication.fetch_sessions import FetchSessions
from ottla.replication.partition import Partition
from ottla.replication.replica_session import ReplicaSessions

R = TypeVar("R")


@dataclass(slots=True)
class LogDirState:
    """One directory of `log.dirs`; `error` is set once it is offline."""

    path: str
    total_bytes: int
    usable_bytes: int
    error: str | None = None


class FutureReplica(NamedTuple):
    """A replica on its way to another log dir of this broker."""

    topic: str
    partition: int
    size: int
    offset_lag: int


class PartitionTable(Protocol):
    """The replicas that live on this broker."""

    def find(self, topic: str, partition: int) -> Partition | None: ...
    def all(self) -> Iterable[Partition]: ...
    def lost(self, topic: str) -> Collection[int]:
        """The topic's partitions whose replica here is of no use: its disk or content failed."""
        ...

    def log_dirs(self) -> list[LogDirState]: ...
    def logs_of(self, log_dir: str) -> Iterable[PartitionLog]: ...
    def futures_of(self, log_dir: str) -> Iterable[FutureReplica]: ...
    def move(self, partition: Partition, log_dir: str) -> bool:
        """Begin to move a replica there, end a move elsewhere; False if the disk refuses."""
        ...

    def prefer(self, topic: str, partition: int, log_dir: str) -> None:
        """Where the replica goes if there ever is one."""
        ...


class ControllerDoor(Protocol):
    def submit(self, decide: Callable[[MetadataImage], Decision[R]]) -> Deferred[R]:
        """Decide on the newest image, write, apply, and only then answer. One at a time."""
        ...


class GroupHost(Protocol):
    """One shard of the groups, and its log."""

    def write(self, decide: Callable[[GroupShard], Outcome[R]]) -> Deferred[R]:
        """The answer comes when its records are committed, or fails with a ProtocolError."""
        ...

    def write_at_once(self, decide: Callable[[GroupShard], Outcome[R]]) -> R | None:
        """As `write`, where nothing has to be waited for; else None, and nothing is written."""
        ...

    def read(self, look: Callable[[GroupShard], R]) -> Deferred[R]: ...


class GroupDoor(Protocol):
    """The coordinator of the groups whose partitions this broker leads."""

    def host_of(self, group_id: str) -> GroupHost | int:
        """The group's shard, or the error code that is owed instead."""
        ...

    def leader_of(self, group_id: str) -> int:
        """The broker that coordinates the group; -1 while there is none."""
        ...

    def partition_of(self, group_id: str) -> int:
        """Which partition of `__consumer_offsets` holds the group."""
        ...

    def hosts(self) -> Iterator[GroupHost]: ...
    def is_loading(self) -> bool: ...
    def ensure_topic(self) -> Deferred[None]:
        """Done when there is a place for groups; fails with a ProtocolError if there cannot be."""
        ...


class TransactionHost(Protocol):
    """One shard of the transactions, and its log."""

    def read(self, look: Callable[[TransactionShard], R]) -> Deferred[R]: ...


class TransactionDoor(Protocol):
    """The coordinator of transactional ids, and the way to the coordinators of others.

    What is asked fails with a ProtocolError if the coordinator is not here or not ready.
    """

    def init_producer_id(self, asked: InitAsked) -> Deferred[dict[str, Any]]: ...
    def end_transaction(self, asked: EndAsked) -> Deferred[dict[str, Any]]: ...
    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        client_version: int,
        patience_ms: int = 0,
    ) -> Deferred[int]:
        """`patience_ms`: how long the markers of the last transaction are waited for."""
        ...

    def verify_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
    ) -> Deferred[dict[TopicPartition, int]]:
        """An error code for each: whether it is in the transaction that is open."""
        ...

    def ask_to_add(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        client_version: int,
        patience_ms: int,
    ) -> Deferred[int]:
        """As `add_partitions`, at whichever broker the coordinator is."""
        ...

    def ask_to_verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
    ) -> Deferred[dict[TopicPartition, int]]:
        """As `verify_partitions`, at whichever broker the coordinator is."""
        ...

    def write_marker(
        self,
        topic: str,
        index: int,
        marker: Transactional,
        client_version: int,
        *,
        is_repeated: bool = False,
    ) -> Deferred[int]:
        """0 when the end of the transaction is in the partition for good."""
        ...

    def host_of(self, transactional_id: str) -> TransactionHost | int: ...
    def leader_of(self, transactional_id: str) -> int: ...
    def hosts(self) -> Iterator[TransactionHost]: ...
    def is_loading(self) -> bool: ...
    def ensure_topic(self) -> Deferred[None]: ...


class Services(Protocol):
    broker_id: int
    config: BrokerConfig
    clock: Clock
    timers: Timers
    pool: Pool
    partitions: PartitionTable
    controller: ControllerDoor
    fetch_sessions: FetchSessions
    replica_sessions: ReplicaSessions
    inter_broker_listener: str
    groups: GroupDoor
    transactions: TransactionDoor

    @property
    def image(self) -> MetadataImage: ...
    def request_flush(self, partition: Partition) -> Deferred[None]:
        """Done when what is appended by now is on the disk; one sync answers all who wait."""
        ...

    def save_log_starts(self, log_dir: str) -> Deferred[None]:
        """Done when the log starts of all partitions there are on the disk as of now."""
        ...

    def storage_failed(self, failure: StorageError) -> None:
        """Take the log dir that failed offline."""
        ...

    def suspect(self, partition: Partition, offset: int) -> None:
        """What is stored at or shortly before this offset may have rotted: look at it."""
        ...

    def soon(self, callback: Callable[[], None]) -> object:
        """At the end of this turn of the loop."""
        ...

    def new_producer_id(self) -> Deferred[int]: ...
    def new_uuid(self) -> uuid.UUID: ...
    def advertised_endpoint(self, broker_id: int, listener_name: str) -> tuple[str, int] | None: ...
    def supported_apis(self, listener_name: str) -> list[tuple[int, int, int]]:
        """(api key, lowest version, highest version) as ApiVersions tells them."""
        ...


class Route(Protocol):
    """The short way for requests like one that a connection has sent before."""

    @property
    def api_key(self) -> int: ...
    def answer(
        self, context: Context, body: memoryview, correlation_id: int
    ) -> bytes | list[Part] | Deferred[Any] | None:
        """The whole frame of the answer, or None if this request has to go the long way."""
        ...


@dataclass(slots=True)
class Context:
    services: Services
    api_version: int
    client_id: str | None
    listener_name: str
    connection_id: int
    client_address: str = ""
    route: Route | None = None
    """For the next request like the last; see `produce_route`, `fetch_route`, `commit_route`."""


Handler = Callable[[Context, Any], Any]
__all__ = [
    "Context",
    "ControllerDoor",
    "FutureReplica",
    "GroupDoor",
    "GroupHost",
    "Handler",
    "LogDirState",
    "PartitionTable",
    "Route",
    "Services",
    "TopicPartition",
    "TransactionDoor",
    "TransactionHost",
]
