"""What a group has to know of the topics it subscribes to, and a hash that tells when it changes.

Kafka hashes with XXH3 and we with BLAKE2: a broker that takes over the other's log finds a hash
that is not its own and makes one more assignment, which is all that it means.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from hashlib import blake2b

from ottla.coordinator.assignors.model import TopicSpec
from ottla.coordinator.cluster_view import ClusterView, TopicView

_MASK = (1 << 64) - 1
_NO_RACKS: frozenset[str] = frozenset()


def racks_of(topic: TopicView, image: ClusterView) -> tuple[frozenset[str], ...]:
    """Of each partition, where its replicas are; () if no broker says in which rack it is."""
    racks = {
        broker_id: broker.rack
        for broker_id, broker in image.brokers.items()
        if broker.rack is not None
    }
    if not racks:
        return ()
    return tuple(
        frozenset(
            racks[replica] for replica in topic.partitions[index].replicas if replica in racks
        )
        if index in topic.partitions
        else _NO_RACKS
        for index in range(len(topic.partitions))
    )


def spec_of(topic: TopicView, image: ClusterView, *, with_racks: bool) -> TopicSpec:
    return TopicSpec(len(topic.partitions), racks_of(topic, image) if with_racks else ())


def topic_ids_of(names: Iterable[str], image: ClusterView) -> frozenset[uuid.UUID]:
    """Of those that exist."""
    topics = image.topics
    return frozenset([topics[name].topic_id for name in names if name in topics])


class TopicHashes:
    """Hashes of topics, made again when the image has another object for the topic or brokers."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[TopicView, int]] = {}
        self._brokers: object = None

    def of_all(self, names: Iterable[str], image: ClusterView) -> int:
        """One hash for all of them that exist, whatever their order; 0 if none does."""
        if image.brokers is not self._brokers:
            self._known.clear()
            self._brokers = image.brokers
        total = 0
        for name in names:
            topic = image.topics.get(name)
            if topic is not None:
                total += self._of(topic, image)
        total &= _MASK
        return total - (1 << 64) if total >> 63 else total

    def forget(self, name: str) -> None:
        self._known.pop(name, None)

    def _of(self, topic: TopicView, image: ClusterView) -> int:
        known = self._known.get(topic.name)
        if known is not None and known[0] is topic:
            return known[1]
        racks = [sorted(one) for one in racks_of(topic, image)]
        told = repr((topic.topic_id.int, topic.name, len(topic.partitions), racks))
        value = int.from_bytes(blake2b(told.encode(), digest_size=8).digest(), "big")
        self._known[topic.name] = (topic, value)
        return value
