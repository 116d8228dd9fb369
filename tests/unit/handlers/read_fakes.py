"""A broker of plain values for the handlers that read: image, partitions, log dirs, clock.

Requests are encoded and decoded in the version under test, answers too, so that every test of a
handler is also one of its field names. Logs are lists of (timestamp, epoch), offsets their places.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from types import ModuleType, SimpleNamespace
from typing import Any, cast

from ottla.base.deferred import Deferred
from ottla.base.errors import OttlaError, ProtocolError, StorageError
from ottla.handlers.context import Context, FutureReplica, LogDirState, Services
from ottla.handlers.reply import Reply
from ottla.log.epoch_cache import EpochCache
from ottla.log.log_config import LogConfig
from ottla.log.partition_log import PartitionLog
from ottla.log.producer_state import ProducerStates
from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.metadata.image import (
    BrokerRegistration,
    MetadataImage,
    PartitionState,
    TopicImage,
)
from ottla.protocol.messages import (
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from ottla.protocol.struct_classes import Message
from ottla.replication.partition import Partition

BROKER_ID = 1
LISTENER = "PLAINTEXT"
NOW_MS = 1_700_000_000_000
LOG_DIR = "/data/one"
Found = tuple[int, int, int] | None


def topic_id_of(name: str) -> uuid.UUID:
    return uuid.uuid5(uuid.NAMESPACE_OID, name)


def a_topic(name: str, *states: PartitionState, **configs: str) -> TopicImage:
    partitions = states or (PartitionState(1, 0, (1,), (1,)), PartitionState(1, 0, (1,), (1,)))
    return TopicImage(name, topic_id_of(name), dict(enumerate(partitions)), configs)


def a_broker(broker_id: int = BROKER_ID, **changes: Any) -> BrokerRegistration:
    endpoints = {LISTENER: (f"host{broker_id}", 9091 + broker_id)}
    return replace(BrokerRegistration(broker_id, 7, endpoints), **changes)


def an_image(
    *topics: TopicImage, brokers: Iterable[BrokerRegistration] = (a_broker(),)
) -> MetadataImage:
    return MetadataImage(
        cluster_id="9B0Gb9fHTdyps9xXL8uT-Q",
        controller_id=BROKER_ID,
        controller_epoch=3,
        brokers={broker.broker_id: broker for broker in brokers},
        topics={topic.name: topic for topic in topics},
        topic_names_by_id={topic.topic_id: topic.name for topic in topics},
        last_change=41,
    )


@dataclass
class FakeTimes:
    """Lookups by time, answered when they are run."""

    log: FakeLog

    def first_since(self, timestamp: int, upper_bound: int) -> Any:
        return SimpleNamespace(run=lambda: self.log.first_since(timestamp, upper_bound))

    def latest(self, upper_bound: int) -> Any:
        return SimpleNamespace(run=lambda: self.log.latest(upper_bound))


@dataclass
class FakeLog:
    topic: str = "t1"
    partition: int = 0
    records: list[tuple[int, int]] = field(default_factory=list)
    config: LogConfig = field(default_factory=LogConfig)
    log_start_offset: int = 0
    size: int = 0
    first_unstable_offset: int | None = None
    failure: StorageError | None = None
    leader_epochs: EpochCache = field(default_factory=EpochCache)
    producers: ProducerStates = field(default_factory=lambda: ProducerStates(86_400_000))

    def __post_init__(self) -> None:
        for offset, (_, epoch) in enumerate(self.records):
            self.leader_epochs.assign(epoch, offset)

    @property
    def log_end_offset(self) -> int:
        return len(self.records)

    def times(self) -> FakeTimes:
        return FakeTimes(self)

    def first_since(self, timestamp: int, upper_bound: int) -> Found:
        self._maybe_fail()
        for offset in range(self.log_start_offset, upper_bound):
            if self.records[offset][0] >= timestamp:
                return (self.records[offset][0], offset, self.records[offset][1])
        return None

    def latest(self, upper_bound: int) -> Found:
        offsets = range(self.log_start_offset, self.log_end_offset)
        if not offsets:
            return None
        best = max(offsets, key=lambda offset: (self.records[offset][0], -offset))
        return None if best >= upper_bound else (self.records[best][0], best, self.records[best][1])

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        return self.leader_epochs.end_offset(epoch, self.log_end_offset)

    def advance_log_start(self, offset: int) -> None:
        self._maybe_fail()
        self.log_start_offset = offset
        self.leader_epochs.truncate_from_start(offset)

    def _maybe_fail(self) -> None:
        if self.failure is not None:
            raise self.failure


def a_partition(
    log: FakeLog | None, topic: str = "t1", index: int = 0, epoch: int = 0
) -> Partition:
    """Led by this broker since before its first record."""
    partition = Partition(topic, index, topic_id_of(topic), LOG_DIR)
    partition.log = cast("PartitionLog | None", log)
    partition.is_leader = True
    partition.leader_id = BROKER_ID
    partition.leader_epoch = epoch
    if log is not None:
        partition.high_watermark = log.log_end_offset
    return partition


class FakePartitions:
    def __init__(self, partitions: Iterable[Partition]) -> None:
        self.table = {(each.topic, each.partition): each for each in partitions}
        self.dirs = [LogDirState(LOG_DIR, total_bytes=1_000, usable_bytes=400)]
        self.futures: dict[str, list[FutureReplica]] = {}
        self.moved: list[tuple[str, int, str]] = []
        self.preferred: dict[tuple[str, int], str] = {}
        self.disk_refuses = False

    def futures_of(self, log_dir: str) -> list[FutureReplica]:
        return self.futures.get(log_dir, [])

    def move(self, partition: Partition, log_dir: str) -> bool:
        self.moved.append((partition.topic, partition.partition, log_dir))
        return not self.disk_refuses

    def prefer(self, topic: str, partition: int, log_dir: str) -> None:
        self.preferred[topic, partition] = log_dir

    def find(self, topic: str, partition: int) -> Partition | None:
        return self.table.get((topic, partition))

    def all(self) -> Iterable[Partition]:
        return self.table.values()

    def lost(self, topic: str) -> set[int]:
        return {
            index for (name, index), one in self.table.items() if name == topic and one.log is None
        }

    def log_dirs(self) -> list[LogDirState]:
        return self.dirs

    def logs_of(self, log_dir: str) -> list[PartitionLog]:
        return [
            partition.log
            for partition in self.table.values()
            if partition.log is not None and partition.log_dir == log_dir
        ]


class FakeController:
    """Keeps what was submitted; `run` decides it all on an image."""

    def __init__(self) -> None:
        self.submitted: list[tuple[Callable[[MetadataImage], Any], Deferred[Any]]] = []

    def submit(self, decide: Callable[[MetadataImage], Any]) -> Deferred[Any]:
        deferred: Deferred[Any] = Deferred()
        self.submitted.append((decide, deferred))
        return deferred

    def run(self, image: MetadataImage) -> list[Any]:
        responses = []
        for decide, deferred in self.submitted:
            decision = decide(image)
            deferred.resolve(decision.response)
            responses.append(decision.response)
        self.submitted.clear()
        return responses


class FakeClock:
    def wall_ms(self) -> int:
        return NOW_MS

    def monotonic_ms(self) -> int:
        return NOW_MS


class PoolAtOnce:
    def run(self, work: Callable[[], Any]) -> Deferred[Any]:
        done: Deferred[Any] = Deferred()
        try:
            done.resolve(work())
        except OttlaError as failure:
            done.fail(failure)
        return done


class FakeServices:
    def __init__(
        self, image: MetadataImage, *partitions: Partition, properties: dict[str, str] | None = None
    ) -> None:
        self.broker_id = BROKER_ID
        self.image = image
        self.inter_broker_listener = LISTENER
        self.config = BrokerConfig(properties or {})
        self.clock = FakeClock()
        self.pool = PoolAtOnce()
        self.partitions = FakePartitions(partitions)
        self.controller = FakeController()
        self.failures: list[StorageError] = []
        self.suspected: list[tuple[str, int]] = []
        self.producer_ids: list[int | ProtocolError] = []
        self.apis = [(0, 0, 13), (3, 0, 13), (18, 0, 4)]
        self._uuids = 0
        self.saving: Deferred[None] | None = None
        """For who wants to have it take time; else it is done at once."""

    def save_log_starts(self, log_dir: str) -> Deferred[None]:
        if self.saving is not None:
            return self.saving
        done: Deferred[None] = Deferred()
        done.resolve(None)
        return done

    def storage_failed(self, failure: StorageError) -> None:
        self.failures.append(failure)

    def suspect(self, partition: Partition, offset: int) -> None:
        self.suspected.append((partition.topic, offset))

    def new_uuid(self) -> uuid.UUID:
        self._uuids += 1
        return uuid.UUID(int=self._uuids)

    def new_producer_id(self) -> Deferred[int]:
        deferred: Deferred[int] = Deferred()
        taken = self.producer_ids.pop(0)
        if isinstance(taken, ProtocolError):
            deferred.fail(taken)
        else:
            deferred.resolve(taken)
        return deferred

    def advertised_endpoint(self, broker_id: int, listener_name: str) -> tuple[str, int] | None:
        broker = self.image.brokers.get(broker_id)
        return None if broker is None else broker.endpoints.get(listener_name)

    def supported_apis(self, listener_name: str) -> list[tuple[int, int, int]]:
        return self.apis


def ask(
    module: ModuleType,
    services: FakeServices,
    version: int,
    /,
    listener: str = LISTENER,
    **fields: Any,
) -> dict[str, Any]:
    """The answer as a client of `version` reads it."""
    key = module.API_KEY
    request = decode_request(key, version, encode_request(key, version, fields))
    context = Context(cast(Services, services), version, "test", listener, 1)
    outcome = module.handle(context, request)
    if isinstance(outcome, Deferred):
        outcome = outcome.result()
    if isinstance(outcome, Reply):
        body = b"".join(cast("list[bytes]", outcome.parts))
        assert outcome.size == len(body)
    else:
        body = encode_response(key, version, outcome)
    return cast("dict[str, Any]", plain(decode_response(key, version, body)))


def versions_of(module: ModuleType) -> list[int]:
    low, high = module.VERSIONS
    return list(range(low, high + 1))


def plain(value: Any) -> Any:
    if isinstance(value, Message):
        return {name: plain(getattr(value, name)) for name in value.__slots__}
    if isinstance(value, list):
        return [plain(each) for each in value]
    return value
