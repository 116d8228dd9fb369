"""The group coordinator of a broker: a shard for each partition of `__consumer_offsets` it leads.

Owns the hosts and their life: a partition that is led here is loaded and then hosted, one that is
not is closed. Makes the topic when somebody asks for a coordinator and there is none yet.
"""

from __future__ import annotations

import functools
import logging
import struct
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import Protocol

from ottla.base.deferred import Deferred
from ottla.base.errors import OttlaError, ProtocolError, StorageError
from ottla.base.ports import Clock, Pool, Timer, Timers
from ottla.coordinator.group_config import GroupConfig
from ottla.coordinator.group_shard import GroupShard
from ottla.coordinator.member_memory import MemberMemory
from ottla.handlers.auto_create import new_topic
from ottla.handlers.context import ControllerDoor, PartitionTable
from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.metadata.controller import (
    CreateResult,
    Decision,
    TopicDefaults,
    decide_create_topics,
)
from ottla.metadata.image import MetadataImage
from ottla.metadata.topic_names import CONSUMER_OFFSETS
from ottla.protocol.error_codes import (
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    NONE,
    NOT_COORDINATOR,
    TOPIC_ALREADY_EXISTS,
)
from ottla.replication.partition import Partition
from ottla.runtime.shard_host import HostTimers, ShardHost
from ottla.runtime.shard_loader import Replay, ShardLoader

log = logging.getLogger("ottla.runtime")

GroupHost = ShardHost[GroupShard]

# A load that failed is tried again after so long; meanwhile clients are told to wait.
LOAD_RETRY_MS = 1000

# Longer ids are nobody's; their hash is not worth remembering.
HASHED_ID_LENGTH_MAX = 256


class CoordinatorServices(Protocol):
    """What the coordinator asks of the broker."""

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


class GroupCoordinator:
    def __init__(self, services: CoordinatorServices) -> None:
        self._services = services
        self._hosts: dict[int, GroupHost] = {}
        self._loading: dict[int, int] = {}
        self._memory = MemberMemory()
        self._config = group_config(services.config)
        self._image = services.image
        self._gone_while_loading: set[str] = set()
        self._creation: Deferred[None] | None = None
        self._tick: Timer | None = None
        self._is_closed = False

    # -- who is responsible -----------------------------------------------------------------

    def partition_of(self, group_id: str) -> int:
        """Which partition of `__consumer_offsets` holds the group."""
        topic = self._services.image.topics.get(CONSUMER_OFFSETS)
        if topic is None:
            count = self._services.config.get_int("offsets.topic.num.partitions")
        else:
            count = len(topic.partitions)
        return _hash_of(group_id) % count

    def host_of(self, group_id: str) -> GroupHost | int:
        """The host of the group, or the error code that is owed instead."""
        return self.host_at(self.partition_of(group_id))

    def host_at(self, index: int) -> GroupHost | int:
        """The host of a partition of `__consumer_offsets`."""
        host = self._hosts.get(index)
        if host is not None:
            return host
        if index in self._loading:
            return COORDINATOR_LOAD_IN_PROGRESS
        # Ours by the image, which this broker has not acted on in full: its log is being opened.
        state = self._services.image.partition(CONSUMER_OFFSETS, index)
        if state is not None and state.leader == self._services.broker_id:
            return COORDINATOR_LOAD_IN_PROGRESS
        return NOT_COORDINATOR

    def leader_of(self, group_id: str) -> int:
        """The broker that coordinates the group; -1 while there is none."""
        state = self._services.image.partition(CONSUMER_OFFSETS, self.partition_of(group_id))
        return -1 if state is None else state.leader

    def hosts(self) -> Iterator[GroupHost]:
        yield from self._hosts.values()

    def is_loading(self) -> bool:
        return bool(self._loading)

    def ensure_topic(self) -> Deferred[None]:
        """Done when `__consumer_offsets` is there; fails with a ProtocolError if it cannot be."""
        done: Deferred[None] = Deferred()
        if self._creation is None:
            if CONSUMER_OFFSETS in self._services.image.topics:
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
                [new_topic(services.config, CONSUMER_OFFSETS)],
                defaults=TopicDefaults(partition_count=1, replication_factor=1),
                check_configs=_settings_of_the_broker,
                new_uuid=services.new_uuid,
            )

        def created(outcome: Deferred[list[CreateResult]]) -> None:
            self._creation = None
            try:
                result = outcome.result()[0]
            except OttlaError as failure:
                log.warning("%s could not be made: %s", CONSUMER_OFFSETS, failure)
                made.fail(ProtocolError(COORDINATOR_NOT_AVAILABLE))
                return
            if result.error_code in (NONE, TOPIC_ALREADY_EXISTS):
                made.resolve(None)
            else:
                log.warning("%s could not be made: %s", CONSUMER_OFFSETS, result.error_message)
                made.fail(ProtocolError(COORDINATOR_NOT_AVAILABLE))

        services.controller.submit(decide).when_done(created)
        return made

    # -- following the image ----------------------------------------------------------------

    def start(self) -> None:
        """The logs are open: whatever is led here is loaded, and offsets begin to age."""
        self._image = self._services.image
        self._follow(self._image)
        self._schedule_tick()

    def on_image(self, image: MetadataImage) -> None:
        """This broker has acted on `image`."""
        old, self._image = self._image, image
        self._follow(image)
        gone = _deleted_topics(old, image)
        if gone and self._loading:
            # A shard that is being loaded does not hear of it before it is there.
            self._gone_while_loading.update(gone)
        for host in list(self._hosts.values()):
            host.run(lambda shard: shard.on_image(image))
            if gone:
                host.run(lambda shard: shard.on_topics_deleted(gone))

    def on_config(self, config: BrokerConfig) -> None:
        self._config = group_config(config)
        for host in self._hosts.values():
            host.shard.on_config(self._config)

    def close(self) -> None:
        self._is_closed = True
        if self._tick is not None:
            self._tick.cancel()
        for index in list(self._hosts):
            self._hosts.pop(index).close()

    def _follow(self, image: MetadataImage) -> None:
        topic = image.topics.get(CONSUMER_OFFSETS)
        wanted: dict[int, Partition] = {}
        for index in () if topic is None else topic.partitions:
            partition = self._services.partitions.find(CONSUMER_OFFSETS, index)
            if partition is not None and partition.check_leader(-1) == NONE:
                wanted[index] = partition
        for index, host in list(self._hosts.items()):
            partition = wanted.get(index)
            if partition is not host.partition or partition.leader_epoch != host.leader_epoch:
                self._hosts.pop(index).close()
        for index, partition in wanted.items():
            if index not in self._hosts and self._loading.get(index) != partition.leader_epoch:
                self._load(index, partition)

    # -- loading ----------------------------------------------------------------------------

    def _load(self, index: int, partition: Partition) -> None:
        epoch = self._loading[index] = partition.leader_epoch
        timers = HostTimers(self._services.timers)

        def loaded(outcome: Deferred[GroupShard]) -> None:
            if self._is_closed or self._loading.get(index) != epoch:
                return  # it is led by another by now, or again by us
            try:
                shard = outcome.result()
            except (OttlaError, OSError, IndexError) as failure:
                log.error("%s-%d could not be loaded: %s", CONSUMER_OFFSETS, index, failure)
                self._services.timers.call_later(LOAD_RETRY_MS, lambda: self._retry(index))
                return
            del self._loading[index]
            host = GroupHost(
                partition,
                shard,
                self._services,
                timers,
                lambda: self._config.offsets_commit_timeout_ms,
            )
            self._hosts[index] = host
            shard.on_config(self._config)
            host.run(lambda shard: shard.on_loaded())
            host.run(lambda shard: shard.on_image(self._image))
            if self._gone_while_loading:
                gone = frozenset(self._gone_while_loading)
                host.run(lambda shard: shard.on_topics_deleted(gone))
            if not self._loading:
                self._gone_while_loading.clear()

        loader = ShardLoader(self._services.pool, lambda: self._new_shard(timers))
        loader.load(partition).when_done(loaded)

    def _retry(self, index: int) -> None:
        if not self._is_closed and self._loading.pop(index, None) is not None:
            self._follow(self._image)

    def _new_shard(self, timers: HostTimers) -> tuple[GroupShard, Replay]:
        shard = GroupShard(
            config=self._config,
            timers=timers,
            clock=self._services.clock,
            new_uuid=self._services.new_uuid,
            image=self._image,
            memory=self._memory,
        )
        return shard, shard.replay

    # -- ageing -----------------------------------------------------------------------------

    def _schedule_tick(self) -> None:
        self._tick = self._services.timers.call_later(
            self._config.offsets_retention_check_interval_ms, self._on_tick
        )

    def _on_tick(self) -> None:
        for host in list(self._hosts.values()):
            self._sweep(host)
        self._schedule_tick()

    def _sweep(self, host: GroupHost) -> None:
        def swept(outcome: Deferred[bool]) -> None:
            try:
                has_more = outcome.result()
            except ProtocolError as refused:
                log.warning("old offsets could not be forgotten: error %d", refused.code)
                return
            if has_more:
                self._services.timers.call_later(0, lambda: self._sweep(host))

        host.write(lambda shard: shard.on_tick()).when_done(swept)


def _deleted_topics(old: MetadataImage, new: MetadataImage) -> frozenset[str]:
    """Names of topics that are gone, or that are another topic by now."""
    if new.topics is old.topics:
        return frozenset()
    return frozenset(
        name
        for name, topic in old.topics.items()
        if name not in new.topics or new.topics[name].topic_id != topic.topic_id
    )


def group_config(config: BrokerConfig) -> GroupConfig:
    """From the broker's settings, which have the same names with dots."""
    values: dict[str, object] = {}
    for field in fields(GroupConfig):
        name = field.name.replace("_", ".")
        if field.name == "rebalance_protocols":
            values[field.name] = tuple(config.get_list("group.coordinator.rebalance.protocols"))
        elif isinstance(field.default, tuple):
            values[field.name] = tuple(config.get_list(name))
        elif isinstance(field.default, str):
            values[field.name] = config.get_str(name)
        else:
            values[field.name] = config.get_int(name)
    return GroupConfig(**values)  # type: ignore[arg-type]


def _hash_of(group_id: str) -> int:
    if len(group_id) > HASHED_ID_LENGTH_MAX:
        return java_hash(group_id)
    return _remembered_hash(group_id)


def java_hash(text: str) -> int:
    """What Java makes of `abs(text.hashCode())`, where the lowest number of all has no positive."""
    data = text.encode("utf-16-be", "surrogatepass")
    total = 0
    for unit in struct.unpack(f">{len(data) // 2}H", data):
        total = (31 * total + unit) & 0xFFFFFFFF
    if total == 0x80000000:
        return 0
    return total if total < 0x80000000 else 0x100000000 - total


_remembered_hash: Callable[[str], int] = functools.lru_cache(maxsize=16_384)(java_hash)


def _settings_of_the_broker(configs: Mapping[str, str]) -> None:
    """Nothing to check: they were checked when the broker read its own settings."""


def _pass_on(made: Deferred[None], done: Deferred[None]) -> None:
    try:
        done.resolve(made.result())
    except ProtocolError as refused:
        done.fail(refused)
