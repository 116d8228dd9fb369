"""Finding the replica a request speaks of, or the error code that is owed instead.

The order is Kafka's: a partition that the cluster does not have (3) before one that lives on
another broker (6), then the disk (56), the epoch (74, 75) and the leadership (6).
"""

from __future__ import annotations

from ottla.handlers.context import Services
from ottla.protocol.error_codes import (
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from ottla.replication.partition import Partition

ANY_EPOCH = -1


def is_known(services: Services, topic: str, index: int) -> bool:
    """Whether the cluster has this partition, on whatever broker."""
    image = services.image.topics.get(topic)
    return image is not None and index in image.partitions


def find_leader(
    services: Services, topic: str, index: int, current_leader_epoch: int = ANY_EPOCH
) -> Partition | int:
    """The partition, led by this broker in an epoch the client agrees with; or an error code."""
    partition = services.partitions.find(topic, index)
    if partition is None:
        known = is_known(services, topic, index)
        return NOT_LEADER_OR_FOLLOWER if known else UNKNOWN_TOPIC_OR_PARTITION
    code = partition.check_leader(current_leader_epoch)
    return partition if code == NONE else code


def find_replica(
    services: Services, topic: str, index: int, current_leader_epoch: int = ANY_EPOCH
) -> Partition | int:
    """As `find_leader`, but a follower will do: for tools that look at one broker's log."""
    found = find_leader(services, topic, index, current_leader_epoch)
    if found != NOT_LEADER_OR_FOLLOWER:
        return found
    partition = services.partitions.find(topic, index)
    return found if partition is None else partition
