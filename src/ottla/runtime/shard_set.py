"""The shards of one internal topic that this broker leads: loaded, hosted, closed, found by key.

Owns the hosts and their life: a partition that is led here is loaded and then hosted, one that is
not is closed. Makes the topic when somebody asks for a coordinator and there is none yet. Knows
nothing of what the shards hold.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

from ottla.base.deferred import Deferred
from ottla.base.errors import OttlaError, ProtocolError, StorageError
from ottla.base.ports import Clock, Pool, Timers
from ottla.handlers.auto_create import new_topic
from ottla.handlers.context import ControllerDoor, PartitionTable
from ottla.metadata.configs.alter import validate_topic_configs
from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.metadata.controller import CreateResult, Decision, TopicDefaults, decide_create_topics
from ottla.metadata.image import MetadataImage
from ottla.protocol.error_codes import (
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    NONE,
    NOT_COORDINATOR,
    TOPIC_ALREADY_EXISTS,
)
from ottla.replication.partition import Partition
from ottla.runtime.key_hash import key_hash
from ottla.runtime.shard_host import HostTimers, Shard, ShardHost
from ottla.runtime.shard_loader import Replay, ShardLoader

log = logging.getLogger("ottla.runtime")

# A load that failed is tried again after so long; meanwhile clients are told to wait.
LOAD_RETRY_MS = 1000

S = TypeVar("S", bound=Shard)


class ShardServices(Protocol):
    """What a set of shards asks of the broker."""

    broker_id: int
    config: BrokerConfig
    clock: Clock
    timers: Timers
    pool: Pool
    partitions: PartitionTable
    controller: ControllerDoor

    @property
    def image(self) -> MetadataImage: ...
    def new_uuid(self) -> uuid.UUID: ...
    def request_flush(self, partition: Partition) -> Deferred[None]: ...
    def storage_failed(self, failure: StorageError) -> None: ...
    def suspect(self, partition: Partition, offset: int) -> None: ...


class ShardSet(Generic[S]):
    """`make` gives an empty shard for a partition, with timers of its own, and the way to replay
    into it; `on_hosted` is told of each that is loaded."""

    def __init__(
        self,
        services: ShardServices,
        topic: str,
        count_setting: str,
        make: Callable[[int, HostTimers], tuple[S, Replay]],
        on_hosted: Callable[[int, ShardHost[S]], None],
        write_timeout_ms: Callable[[], int],
    ) -> None:
        self.topic = topic
        self._services = services
        self._count_setting = count_setting
        self._make = make
        self._on_hosted = on_hosted
        self._write_timeout_ms = write_timeout_ms
        self._hosts: dict[int, ShardHost[S]] = {}
        self._loading: dict[int, int] = {}
        self._creation: Deferred[None] | None = None
        self._is_closed = False

    # -- who is responsible -----------------------------------------------------------------

    def partition_of(self, key: str) -> int:
        topic = self._services.image.topics.get(self.topic)
        if topic is None:
            count = self._services.config.get_int(self._count_setting)
        else:
            count = len(topic.partitions)
        return key_hash(key) % count

    def host_of(self, key: str) -> ShardHost[S] | int:
        """The host of the key, or the error code that is owed instead."""
        return self.host_at(self.partition_of(key))

    def host_at(self, index: int) -> ShardHost[S] | int:
        host = self._hosts.get(index)
        if host is not None:
            return host
        if index in self._loading:
            return COORDINATOR_LOAD_IN_PROGRESS
        # Ours by the image, which this broker has not acted on in full: its log is being opened.
        state = self._services.image.partition(self.topic, index)
        if state is not None and state.leader == self._services.broker_id:
            return COORDINATOR_LOAD_IN_PROGRESS
        return NOT_COORDINATOR

    def leader_of(self, key: str) -> int:
        """The broker that coordinates the key; -1 while there is none."""
        state = self._services.image.partition(self.topic, self.partition_of(key))
        return -1 if state is None else state.leader

    def hosts(self) -> Iterator[ShardHost[S]]:
        yield from list(self._hosts.values())

    def is_loading(self) -> bool:
        return bool(self._loading)

    def ensure_topic(self) -> Deferred[None]:
        """Done when the topic is there; fails with a ProtocolError if it cannot be."""
        done: Deferred[None] = Deferred()
        if self._creation is None:
            if self.topic in self._services.image.topics:
                done.resolve(None)
                return done
            self._creation = self._create_topic()
        self._creation.when_done(lambda made: _pass_on(made, done))
        return done

    def _create_topic(self) -> Deferred[None]:
        services = self._services
        made: Deferred[None] = Deferred()

        def decide(image: MetadataImage) -> Decision[list[CreateResult]]:
            return decide_create_topics(
                image,
                [new_topic(services.config, self.topic)],
                defaults=TopicDefaults(partition_count=1, replication_factor=1),
                check_configs=validate_topic_configs,
                new_uuid=services.new_uuid,
            )

        def created(outcome: Deferred[list[CreateResult]]) -> None:
            self._creation = None
            try:
                result = outcome.result()[0]
            except OttlaError as failure:
                log.warning("%s could not be made: %s", self.topic, failure)
                made.fail(ProtocolError(COORDINATOR_NOT_AVAILABLE))
                return
            if result.error_code in (NONE, TOPIC_ALREADY_EXISTS):
                made.resolve(None)
            else:
                log.warning("%s could not be made: %s", self.topic, result.error_message)
                made.fail(ProtocolError(COORDINATOR_NOT_AVAILABLE))

        services.controller.submit(decide).when_done(created)
        return made

    # -- following the image ----------------------------------------------------------------

    def follow(self, image: MetadataImage) -> None:
        """This broker has acted on `image`: host what it leads, close what it does not."""
        if self._is_closed:
            return
        topic = image.topics.get(self.topic)
        wanted: dict[int, Partition] = {}
        for index in () if topic is None else topic.partitions:
            partition = self._services.partitions.find(self.topic, index)
            if partition is not None and partition.check_leader(-1) == NONE:
                wanted[index] = partition
        for index, host in list(self._hosts.items()):
            partition = wanted.get(index)
            if partition is not host.partition or not host.leads():
                self._hosts.pop(index).close()
        for index, epoch in list(self._loading.items()):
            partition = wanted.get(index)
            if partition is None or partition.leader_epoch != epoch:
                del self._loading[index]
        for index, partition in wanted.items():
            if index not in self._hosts and self._loading.get(index) != partition.leader_epoch:
                self._load(index, partition)

    def close(self) -> None:
        self._is_closed = True
        for index in list(self._hosts):
            self._hosts.pop(index).close()

    def _load(self, index: int, partition: Partition) -> None:
        epoch = self._loading[index] = partition.leader_epoch
        timers = HostTimers(self._services.timers)

        def loaded(outcome: Deferred[S]) -> None:
            if self._is_closed or self._loading.get(index) != epoch:
                # It is led by another by now, or again by us: what was loaded is of no use.
                if outcome.error() is None:
                    outcome.result().unload()
                return
            try:
                shard = outcome.result()
            except (OttlaError, OSError, IndexError) as failure:
                log.error("%s-%d could not be loaded: %s", self.topic, index, failure)
                self._services.timers.call_later(LOAD_RETRY_MS, lambda: self._retry(index))
                return
            del self._loading[index]
            host = ShardHost(partition, shard, self._services, timers, self._write_timeout_ms)
            self._hosts[index] = host
            self._on_hosted(index, host)

        services = self._services
        loader = ShardLoader(services.pool, lambda: self._make(index, timers), services.suspect)
        loader.load(partition).when_done(loaded)

    def _retry(self, index: int) -> None:
        if not self._is_closed and self._loading.pop(index, None) is not None:
            self.follow(self._services.image)


def _pass_on(made: Deferred[None], done: Deferred[None]) -> None:
    try:
        done.resolve(made.result())
    except ProtocolError as refused:
        done.fail(refused)
