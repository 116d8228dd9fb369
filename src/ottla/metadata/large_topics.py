"""Topics with more partitions than one commit of the store holds: made, grown and deleted in parts.

A commit of ZooKeeper's has at most a megabyte, which is some two thousand partitions. A larger
topic is made with its first partitions, and gets the others in the commits that follow, before
anybody is answered; it is deleted from its end. Everything here is about how to divide; the
decisions themselves are in `topics_control`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.metadata import paths
from ottla.metadata.assignment import moving_of, topic_write
from ottla.metadata.decision import Decision, decided
from ottla.metadata.image import MetadataImage
from ottla.metadata.store import Write
from ottla.metadata.topics_control import (
    BROKER_DEFAULT,
    PARTITIONS_PER_REQUEST_MAX,
    MorePartitions,
    NewTopic,
    TopicDefaults,
)

PARTITIONS_PER_COMMIT = 1_000
PARTITIONS_PER_DELETION = 2_000


def partition_count(topic: NewTopic, defaults: TopicDefaults) -> int:
    if topic.assignments:
        return len(topic.assignments)
    if topic.partition_count == BROKER_DEFAULT:
        return defaults.partition_count
    return max(topic.partition_count, 0)


def first_part(topic: NewTopic, defaults: TopicDefaults) -> NewTopic:
    """The topic with as many partitions as one commit holds; as it is where that is all of them,
    or where it will be refused anyway."""
    if partition_count(topic, defaults) <= PARTITIONS_PER_COMMIT:
        return topic
    if not topic.assignments:
        return topic._replace(partition_count=PARTITIONS_PER_COMMIT)
    in_order = sorted(topic.assignments, key=lambda assignment: assignment[0])
    if [index for index, _ in in_order] != list(range(len(in_order))):
        return topic
    return topic._replace(assignments=in_order[:PARTITIONS_PER_COMMIT])


def further_parts(topic: NewTopic, defaults: TopicDefaults) -> list[MorePartitions]:
    """What `first_part` has left out, one commit each."""
    count = partition_count(topic, defaults)
    replicas = [list(ids) for _, ids in sorted(topic.assignments, key=lambda one: one[0])]
    whole = MorePartitions(topic.name, count, replicas[PARTITIONS_PER_COMMIT:] or None)
    return growth(whole, PARTITIONS_PER_COMMIT)


def growth(wanted: MorePartitions, present: int) -> list[MorePartitions]:
    """From `present` partitions to those that are wanted; as one where that will be refused."""
    additional = wanted.partition_count - present
    given = additional if wanted.assignments is None else len(wanted.assignments)
    if additional > PARTITIONS_PER_REQUEST_MAX or given != additional:
        return [wanted]
    parts = []
    for first in range(present, wanted.partition_count, PARTITIONS_PER_COMMIT):
        end = min(first + PARTITIONS_PER_COMMIT, wanted.partition_count)
        assignments: Sequence[Sequence[int]] | None = None
        if wanted.assignments is not None:
            assignments = wanted.assignments[first - present : end - present]
        parts.append(MorePartitions(wanted.name, end, assignments))
    return parts


def bundles(topics: Sequence[NewTopic], defaults: TopicDefaults) -> list[list[NewTopic]]:
    """Topics that are made in one commit each time. Two of the same name stay together: one of
    them is told of the other."""
    filled: list[list[NewTopic]] = [[]]
    size = 0
    by_name: dict[str, list[NewTopic]] = {}
    for topic in topics:
        by_name.setdefault(topic.name, []).append(topic)
    for same in by_name.values():
        added = sum(min(partition_count(one, defaults), PARTITIONS_PER_COMMIT) for one in same)
        if filled[-1] and size + added > PARTITIONS_PER_COMMIT:
            filled.append([])
            size = 0
        filled[-1] += same
        size += added
    return filled


def decide_trim(image: MetadataImage, name: str) -> Decision[bool]:
    """Takes the last partitions off a topic that is too large to be deleted at once; whether there
    was anything to take. Only for a topic that is about to go."""
    topic = image.topics.get(name)
    if topic is None or len(topic.partitions) <= PARTITIONS_PER_DELETION:
        return Decision([], False)
    kept = max(len(topic.partitions) - PARTITIONS_PER_DELETION, PARTITIONS_PER_DELETION)
    replicas = {index: topic.partitions[index].replicas for index in range(kept)}
    moving = {index: moved for index, moved in moving_of(topic).items() if index < kept}
    removed = [
        Write(paths.partition_state(name, index), None, None)
        for index in range(kept, len(topic.partitions))
    ]
    return decided(image, [topic_write(topic, replicas, moving), *removed], True)
