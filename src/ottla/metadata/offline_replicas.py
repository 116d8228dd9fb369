"""Replicas whose disk or whose content has failed while their broker lives.

The broker itself says so, by a commit of its own: what it led goes to others, and it is neither in
sync nor eligible there any more. Where nobody else knows anything nothing changes: the partition
has to wait for the operator.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.base.ids import TopicPartition
from ottla.metadata.decision import Decision, decided
from ottla.metadata.duties import Done, Moved
from ottla.metadata.image import MetadataImage
from ottla.metadata.partition_rules import PartitionChange
from ottla.metadata.partition_writes import PartitionWrites
from ottla.metadata.topic_settings import TopicSettings


def decide_offline_replicas(
    image: MetadataImage, broker_id: int, lost: Iterable[TopicPartition], settings: TopicSettings
) -> Decision[Done]:
    """As much as fits into one commit; nothing (more) to do: no writes."""
    writes = PartitionWrites(image)
    done = Done()
    for name, index in lost:
        topic = image.topics.get(name)
        state = None if topic is None else topic.partitions.get(index)
        if topic is None or state is None or broker_id not in (*state.in_sync, *state.eligible):
            continue
        after = PartitionChange(
            state, image.may_lead, settings.min_in_sync(topic), unknowing={broker_id}
        ).built()
        if writes.add(topic, index, after):
            done.moved.append(Moved(name, index, state, after))
        if writes.is_full():
            break
    operations = writes.operations()
    return decided(image, operations, done) if operations else Decision([], done)
