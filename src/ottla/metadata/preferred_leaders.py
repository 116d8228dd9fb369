"""Leaderships back to the first replica of each list, when too many have gone elsewhere.

A duty of the controller, from time to time: after a restart a broker leads nothing until somebody
gives its partitions back.
"""

from __future__ import annotations

from collections import Counter

from ottla.metadata.decision import Decision, decided
from ottla.metadata.duties import Done, Moved
from ottla.metadata.image import MetadataImage
from ottla.metadata.partition_rules import PartitionChange
from ottla.metadata.partition_writes import PartitionWrites
from ottla.metadata.topic_settings import TopicSettings


def decide_preferred_leaders(
    image: MetadataImage, settings: TopicSettings, *, percentage: int
) -> Decision[Done] | None:
    """For brokers that lead less than they are meant to by more than `percentage` of it; as many
    partitions as one commit holds. None: all is well."""
    wanting = _wanting(image, percentage)
    if not wanting:
        return None
    writes = PartitionWrites(image)
    done = Done()
    for topic in image.topics.values():
        for index, state in topic.partitions.items():
            first = state.replicas[0]
            if state.leader == first or first not in wanting or state.is_reassigning():
                continue
            after = PartitionChange(
                state,
                image.may_lead_in(topic, index),
                settings.min_in_sync(topic),
                prefer_first=True,
            ).built()
            if after.leader == first and writes.add(topic, index, after):
                done.moved.append(Moved(topic.name, index, state, after))
                if writes.is_full():
                    return decided(image, writes.operations(), done)
    return None if writes.is_empty() else decided(image, writes.operations(), done)


def _wanting(image: MetadataImage, percentage: int) -> set[int]:
    meant: Counter[int] = Counter()
    missing: Counter[int] = Counter()
    for topic in image.topics.values():
        for state in topic.partitions.values():
            first = state.replicas[0]
            meant[first] += 1
            missing[first] += state.leader != first
    return {
        broker
        for broker, count in missing.items()
        if image.may_lead(broker) and count * 100 > percentage * meant[broker]
    }
