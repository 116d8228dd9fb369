"""The group coordinator of a broker: a shard for each partition of `__consumer_offsets` it leads.

Owns what the shards share: their settings, the image that they know, the memory of their members,
and the ageing of offsets. Which shards there are is for the set to say.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import fields

from ottla.base.deferred import Deferred
from ottla.base.errors import ProtocolError
from ottla.base.ports import Timer
from ottla.coordinator.group_config import GroupConfig
from ottla.coordinator.group_shard import GroupShard
from ottla.coordinator.member_memory import BrokerMemory, MemberMemory
from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.metadata.image import MetadataImage
from ottla.metadata.topic_names import CONSUMER_OFFSETS
from ottla.runtime.shard_host import HostTimers, ShardHost
from ottla.runtime.shard_loader import Replay
from ottla.runtime.shard_set import ShardServices, ShardSet

log = logging.getLogger("ottla.runtime")

GroupHost = ShardHost[GroupShard]


class GroupCoordinator:
    def __init__(self, services: ShardServices) -> None:
        self._services = services
        self._memory = BrokerMemory()
        self._config = group_config(services.config)
        self._image = services.image
        self._gone_while_loading: set[str] = set()
        self._tick: Timer | None = None
        self._shards: ShardSet[GroupShard] = ShardSet(
            services,
            CONSUMER_OFFSETS,
            "offsets.topic.num.partitions",
            self._new_shard,
            self._on_hosted,
            lambda: self._config.offsets_commit_timeout_ms,
        )

    # -- who is responsible -----------------------------------------------------------------

    def partition_of(self, group_id: str) -> int:
        """Which partition of `__consumer_offsets` holds the group."""
        return self._shards.partition_of(group_id)

    def host_of(self, group_id: str) -> GroupHost | int:
        """The host of the group, or the error code that is owed instead."""
        return self._shards.host_of(group_id)

    def host_at(self, index: int) -> GroupHost | int:
        """The host of a partition of `__consumer_offsets`."""
        return self._shards.host_at(index)

    def leader_of(self, group_id: str) -> int:
        """The broker that coordinates the group; -1 while there is none."""
        return self._shards.leader_of(group_id)

    def hosts(self) -> Iterator[GroupHost]:
        return self._shards.hosts()

    def is_loading(self) -> bool:
        return self._shards.is_loading()

    def ensure_topic(self) -> Deferred[None]:
        """Done when `__consumer_offsets` is there; fails with a ProtocolError if it cannot be."""
        return self._shards.ensure_topic()

    # -- following the image ----------------------------------------------------------------

    def start(self) -> None:
        """The logs are open: whatever is led here is loaded, and offsets begin to age."""
        self._image = self._services.image
        self._shards.follow(self._image)
        self._schedule_tick()

    def on_image(self, image: MetadataImage) -> None:
        """This broker has acted on `image`."""
        old, self._image = self._image, image
        self._shards.follow(image)
        gone = _deleted_topics(old, image)
        if gone and self._shards.is_loading():
            # A shard that is being loaded does not hear of it before it is there.
            self._gone_while_loading.update(gone)
        for host in self._shards.hosts():
            host.run(lambda shard: shard.on_image(image))
            if gone:
                host.run(lambda shard: shard.on_topics_deleted(gone))

    def follow_again(self) -> None:
        """The image is the same, but what is led here is not."""
        self._shards.follow(self._image)

    def on_config(self, config: BrokerConfig) -> None:
        self._config = group_config(config)
        for host in self._shards.hosts():
            host.shard.on_config(self._config)

    def close(self) -> None:
        if self._tick is not None:
            self._tick.cancel()
        self._shards.close()

    def _new_shard(self, index: int, timers: HostTimers) -> tuple[GroupShard, Replay]:
        shard = GroupShard(
            config=self._config,
            timers=timers,
            clock=self._services.clock,
            new_uuid=self._services.new_uuid,
            image=self._image,
            memory=MemberMemory(self._memory),
        )
        return shard, shard.replay

    def _on_hosted(self, index: int, host: GroupHost) -> None:
        host.shard.on_config(self._config)
        host.run(lambda shard: shard.on_loaded())
        host.run(lambda shard: shard.on_image(self._image))
        if self._gone_while_loading:
            gone = frozenset(self._gone_while_loading)
            host.run(lambda shard: shard.on_topics_deleted(gone))
        if not self._shards.is_loading():
            self._gone_while_loading.clear()

    # -- ageing -----------------------------------------------------------------------------

    def _schedule_tick(self) -> None:
        self._tick = self._services.timers.call_later(
            self._config.offsets_retention_check_interval_ms, self._on_tick
        )

    def _on_tick(self) -> None:
        self._sweep_next(self._shards.hosts())
        self._schedule_tick()

    def _sweep_next(self, hosts: Iterator[GroupHost]) -> None:
        """One shard after the other, each in turns of its own: requests come in between."""
        host = next((one for one in hosts if not one.is_closed), None)
        if host is not None:
            self._sweep(host, hosts)

    def _sweep(self, host: GroupHost, others: Iterator[GroupHost]) -> None:
        def swept(outcome: Deferred[bool]) -> None:
            has_more = False
            try:
                has_more = outcome.result()
            except ProtocolError as refused:
                log.warning("old offsets could not be forgotten: error %d", refused.code)
            self._services.timers.call_later(
                0, lambda: self._sweep(host, others) if has_more else self._sweep_next(others)
            )

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
