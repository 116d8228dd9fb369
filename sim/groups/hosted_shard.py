"""The real group shard in its real host, on virtual time and a simulated log."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from ottla.coordinator.cluster_view import BrokerView, TopicView
from ottla.coordinator.group_config import GroupConfig
from ottla.coordinator.group_shard import GroupShard
from ottla.replication.partition import Partition
from ottla.runtime.shard_host import HostTimers, ShardHost
from sim.groups.simulated_log import SimulatedPartition, SimulatedServices
from sim.groups.virtual import VirtualTime

COMMIT_TIMEOUT_MS = 5000


@dataclass(frozen=True)
class Part:
    replicas: tuple[int, ...] = (1,)


@dataclass(frozen=True)
class Topic:
    name: str
    topic_id: uuid.UUID
    partitions: Mapping[int, Part]


@dataclass(frozen=True)
class Cluster:
    """Enough of a metadata image for groups."""

    topics: Mapping[str, TopicView] = field(default_factory=dict)
    topic_names_by_id: Mapping[uuid.UUID, str] = field(default_factory=dict)
    brokers: Mapping[int, BrokerView] = field(default_factory=dict)
    group_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def a_cluster(**partition_counts: int) -> Cluster:
    topics = {
        name: Topic(
            name,
            uuid.uuid5(uuid.NAMESPACE_OID, name),
            {index: Part() for index in range(count)},
        )
        for name, count in partition_counts.items()
    }
    return Cluster(topics, {topic.topic_id: name for name, topic in topics.items()})


class HostedShard:
    def __init__(
        self,
        *,
        config: GroupConfig | None = None,
        image: Cluster | None = None,
        make_shard: Callable[..., GroupShard] = GroupShard,
    ) -> None:
        self.time = VirtualTime()
        self.services = SimulatedServices(self.time)
        self.partition = SimulatedPartition()
        self.config = config or GroupConfig(group_initial_rebalance_delay_ms=0)
        self.image = image or a_cluster(t=4)
        self._make_shard = make_shard
        self._uuids = 0
        self.host: ShardHost[GroupShard]
        self._load()

    @property
    def shard(self) -> GroupShard:
        return self.host.shard

    def restart(self) -> None:
        """The process dies, and another reads the log. Whoever waited never hears of it."""
        self.partition.leader_epoch += 1
        self.host.close()
        self.partition.commit_all()
        self._load()

    def replayed(self) -> GroupShard:
        """What another broker would make of the log as it is now, before any time passes."""
        return self._new_shard(HostTimers(VirtualTime()))

    def _load(self) -> None:
        timers = HostTimers(self.time)
        shard = self._new_shard(timers)
        self.host = ShardHost(
            cast(Partition, self.partition),
            shard,
            cast(Any, self.services),
            timers,
            lambda: COMMIT_TIMEOUT_MS,
        )
        self.host.run(lambda shard: shard.on_loaded())

    def _new_shard(self, timers: HostTimers) -> GroupShard:
        shard = self._make_shard(
            config=self.config,
            timers=timers,
            clock=self.time,
            new_uuid=self._new_uuid,
            image=self.image,
        )
        for record, producer_id in self.partition.live_records():
            shard.replay(record, producer_id)
        return shard

    def _new_uuid(self) -> uuid.UUID:
        self._uuids += 1
        return uuid.UUID(int=self._uuids)
