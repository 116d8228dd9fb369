"""What a broker knows of its cluster at one moment: brokers, topics, settings, features.

An image is never changed: `changes.apply` makes the next one and copies only what differs, so a
handler may keep the image it began with for as long as its request lasts. The mappings are plain
dicts for speed; nobody writes to them.

Versions are kept beside the values, because a decision must name the version it was made on:
a partition's `partition_epoch` is the version of its state node, a topic has the versions of its
two nodes, and every node that exists once is listed in `versions` by its path.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from ottla.base.ids import NO_BROKER

ABSENT_VERSION = -1
"""The version of a node that does not exist."""

NO_CHANGE = -1


@dataclass(frozen=True, slots=True)
class PartitionState:
    """`in_sync` is within `replicas` and never empty; `leader` is -1 or one of `in_sync` (Z2).

    `replicas` ends with those to be removed while a reassignment is under way. `eligible` are
    replicas outside the in-sync set that have everything committed (KIP-966), `last_known` the
    leaders before the last one was lost. `unclean_epoch` is the leader epoch of the last election
    that may have lost something; -1 if there was none.
    """

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    partition_epoch: int = 0
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    eligible: tuple[int, ...] = ()
    last_known: tuple[int, ...] = ()
    unclean_epoch: int = -1

    def is_reassigning(self) -> bool:
        return bool(self.adding or self.removing)

    def original_replicas(self) -> tuple[int, ...]:
        """The replicas before the reassignment that is under way, if one is."""
        return tuple(replica for replica in self.replicas if replica not in self.adding)

    def target_replicas(self) -> tuple[int, ...]:
        """The replicas once no reassignment is under way."""
        return tuple(replica for replica in self.replicas if replica not in self.removing)


@dataclass(frozen=True, slots=True)
class TopicImage:
    name: str
    topic_id: uuid.UUID
    partitions: Mapping[int, PartitionState]
    configs: Mapping[str, str] = field(default_factory=dict)
    version: int = 0
    configs_version: int = ABSENT_VERSION


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """`fenced`: known to the cluster, but dead or not yet serving; it keeps its replicas and leads
    nothing.

    `epoch` tells one life of a broker from the next; -1 while it is dead. `shutting_down`: it is
    about to leave and takes over nothing. `unclean`: it comes back after a loss of power and may
    have lost records; so until it has left every set of those who have them. `offline`: partitions,
    by the id of their topic, whose replica it has lost in this life, because a disk or what was on
    it has failed.
    """

    broker_id: int
    epoch: int
    endpoints: Mapping[str, tuple[str, int]]
    rack: str | None = None
    fenced: bool = False
    shutting_down: bool = False
    unclean: bool = False
    security_protocols: Mapping[str, str] = field(default_factory=dict)
    offline: Mapping[uuid.UUID, frozenset[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """`broker_configs`: dynamic settings by broker id as text, "" for those of the cluster."""

    cluster_id: str = ""
    controller_id: int = NO_BROKER
    controller_epoch: int = 0
    brokers: Mapping[int, BrokerRegistration] = field(default_factory=dict)
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    topic_names_by_id: Mapping[uuid.UUID, str] = field(default_factory=dict)
    broker_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    features: Mapping[str, int] = field(default_factory=dict)
    client_metrics_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    group_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    next_producer_id: int = 0
    versions: Mapping[str, int] = field(default_factory=dict)
    last_change: int = NO_CHANGE

    def version_of(self, path: str) -> int:
        """The version of a node that exists once (not of topics and partitions)."""
        return self.versions.get(path, ABSENT_VERSION)

    def topic_by_id(self, topic_id: uuid.UUID) -> TopicImage | None:
        name = self.topic_names_by_id.get(topic_id)
        return None if name is None else self.topics[name]

    def partition(self, topic: str, index: int) -> PartitionState | None:
        image = self.topics.get(topic)
        return None if image is None else image.partitions.get(index)

    def live_brokers(self) -> list[BrokerRegistration]:
        return [broker for broker in self.brokers.values() if not broker.fenced]

    def is_live(self, broker_id: int) -> bool:
        """Whether it is there and serves."""
        broker = self.brokers.get(broker_id)
        return broker is not None and not broker.fenced

    def may_lead(self, broker_id: int) -> bool:
        """Whether it may take over a partition; whether it knows enough is another question."""
        broker = self.brokers.get(broker_id)
        return broker is not None and not broker.fenced and not broker.shutting_down

    def lost_by(self, topic: TopicImage, index: int) -> frozenset[int]:
        """The brokers whose replica of the partition is of no use."""
        return frozenset(
            broker.broker_id
            for broker in self.brokers.values()
            if broker.offline and index in broker.offline.get(topic.topic_id, ())
        )

    def may_lead_in(self, topic: TopicImage, index: int) -> Callable[[int], bool]:
        """Who may take over this partition: who has lost it may take over others only."""
        lost = self.lost_by(topic, index)
        return (lambda one: one not in lost and self.may_lead(one)) if lost else self.may_lead

    def unclean_brokers(self) -> frozenset[int]:
        return frozenset(broker.broker_id for broker in self.brokers.values() if broker.unclean)

    def reassigning(self) -> Iterator[tuple[str, int, PartitionState]]:
        for topic in self.topics.values():
            for index, state in topic.partitions.items():
                if state.is_reassigning():
                    yield topic.name, index, state


EMPTY_IMAGE = MetadataImage()
