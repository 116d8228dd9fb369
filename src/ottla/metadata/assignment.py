"""Replicas of a partition: whether a list of them will do, the first state, the topic's node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.base.errors import ProtocolError
from ottla.metadata import nodes, paths
from ottla.metadata.image import MetadataImage, TopicImage
from ottla.metadata.nodes import StateContent
from ottla.metadata.store import Write
from ottla.protocol.error_codes import INVALID_REPLICA_ASSIGNMENT


def check_replicas(
    image: MetadataImage, replicas: Sequence[int], replication_factor: int | None = None
) -> None:
    """Known brokers, each once, as many as the other partitions have; else code 39."""
    if not replicas:
        raise refused("The manual partition assignment includes an empty replica list.")
    last = None
    for replica in sorted(replicas):
        if replica not in image.brokers:
            raise refused(
                f"The manual partition assignment includes broker {replica}, "
                "but no such broker is registered."
            )
        if replica == last:
            raise refused(
                f"The manual partition assignment includes the broker {replica} more than once."
            )
        last = replica
    if replication_factor is not None and len(replicas) != replication_factor:
        raise refused(
            f"The manual partition assignment includes a partition with {len(replicas)} "
            "replica(s), but this is not consistent with previous partitions, which have "
            f"{replication_factor} replica(s)."
        )


def first_state(image: MetadataImage, index: int, replicas: Sequence[int]) -> StateContent:
    """The replicas that are alive and stay begin in sync, the first of them leads."""
    live = tuple(replica for replica in replicas if image.may_lead(replica))
    if not live:
        raise refused(
            f"All brokers specified in the manual partition assignment for partition {index} "
            "are fenced or in controlled shutdown."
        )
    return StateContent(leader=live[0], leader_epoch=0, in_sync=live, eligible=(), last_known=())


Moving = dict[int, tuple[tuple[int, ...], tuple[int, ...]]]
"""Partition -> (replicas being added, replicas being removed)."""


def moving_of(topic: TopicImage) -> Moving:
    return {
        index: (state.adding, state.removing)
        for index, state in topic.partitions.items()
        if state.is_reassigning()
    }


def topic_write(topic: TopicImage, replicas: Mapping[int, Sequence[int]], moving: Moving) -> Write:
    """The topic's node with these replicas, on top of the version that `topic` was read at."""
    adding = {index: added for index, (added, _) in moving.items() if added}
    removing = {index: removed for index, (_, removed) in moving.items() if removed}
    content = nodes.topic(topic.topic_id, replicas, adding, removing)
    return Write(paths.topic(topic.name), content, topic.version)


def refused(message: str) -> ProtocolError:
    return ProtocolError(INVALID_REPLICA_ASSIGNMENT, message)
