"""Replicas whose disk or whose content has failed while their broker lives.

The broker itself says so, by commits of its own. Its registration tells which they are, in one
write however many, so that every broker knows; what it led goes to others, and it is neither in
sync nor eligible there any more. Where nobody else knows anything the partition has no leader and
waits for the operator: a new life of the broker begins with nothing lost.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace

from ottla.metadata.decision import Decision, decided
from ottla.metadata.image import MetadataImage
from ottla.metadata.partition_rules import PartitionChange
from ottla.metadata.partition_writes import PartitionWrites
from ottla.metadata.registrations import check_registered, is_registered, registration_write
from ottla.metadata.store import Operation, Write
from ottla.metadata.topic_settings import TopicSettings

Lost = Mapping[uuid.UUID, frozenset[int]]
"""Partitions by the id of their topic."""

TOLD_MAX = 10_000
"""Partitions that one registration names: with an id for each of them it stays well below what
ZooKeeper takes. Whoever has lost more has to be restarted soon anyway."""
ALONE_BYTES_MIN = 64 * 1024
"""A registration that is larger goes before the states of partitions, not with them."""


def decide_offline_replicas(
    image: MetadataImage, broker_id: int, lost: Lost, settings: TopicSettings
) -> Decision[bool]:
    """`lost` is all that is lost now. As much as fits into one commit, and whether there was
    anything to write: then there may be more."""
    check_registered(image, broker_id)
    said: list[Operation] = []
    if not is_told(image, broker_id, lost):
        write = registration_with(image, broker_id, lost)
        said.append(write)
        if len(write.content or b"") > ALONE_BYTES_MIN:
            return decided(image, said, True)
    states = _moved_out(image, broker_id, lost, settings).operations()
    return decided(image, [*said, *states], bool(said or states))


def is_told(image: MetadataImage, broker_id: int, lost: Lost) -> bool:
    """Whether the registration says so; one that is not there has nothing to say."""
    return not is_registered(image, broker_id) or image.brokers[broker_id].offline == _told(lost)


def registration_with(image: MetadataImage, broker_id: int, lost: Lost) -> Write:
    return registration_write(image, replace(image.brokers[broker_id], offline=_told(lost)))


def _told(lost: Lost) -> dict[uuid.UUID, frozenset[int]]:
    """The same ones each time, where it is too much."""
    left, told = TOLD_MAX, {}
    for topic_id in sorted(lost) if sum(map(len, lost.values())) > TOLD_MAX else lost:
        indexes = sorted(lost[topic_id])[:left]
        if indexes:
            told[topic_id] = frozenset(indexes)
            left -= len(indexes)
    return told


def _moved_out(
    image: MetadataImage, broker_id: int, lost: Lost, settings: TopicSettings
) -> PartitionWrites:
    writes = PartitionWrites(image)
    may_lead = frozenset(filter(image.may_lead, image.brokers))
    for topic_id, indexes in lost.items():
        topic = image.topic_by_id(topic_id)
        if topic is None:
            continue
        for index in sorted(indexes & topic.partitions.keys()):
            state = topic.partitions[index]
            if broker_id not in (*state.in_sync, *state.eligible):
                continue
            without = image.lost_by(topic, index) | {broker_id}
            after = PartitionChange(
                state,
                may_lead.difference(without).__contains__,
                settings.min_in_sync(topic),
                unknowing=image.unclean_brokers() | without,
                unclean=settings.is_unclean_allowed(topic),
            ).built()
            writes.add(topic, index, after)
            if writes.is_full():
                return writes
    return writes
