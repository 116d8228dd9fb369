"""Which partitions have got another leader between two images, whoever decided it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ottla.base.ids import NO_BROKER
from ottla.metadata.image import MetadataImage


class NewLeader(NamedTuple):
    topic: str
    partition: int
    leader: int
    leader_epoch: int
    is_unclean: bool


def new_leaders(old: MetadataImage, new: MetadataImage) -> Iterator[NewLeader]:
    """Of partitions that both have. An unclean election may also name the leader that was."""
    if new.topics is old.topics:
        return
    for name, topic in new.topics.items():
        before_all = old.topics.get(name)
        if before_all is None or before_all is topic or before_all.topic_id != topic.topic_id:
            continue
        for index, after in topic.partitions.items():
            before = before_all.partitions.get(index)
            if before is None or before is after or after.leader == NO_BROKER:
                continue
            epoch = after.leader_epoch
            is_unclean = epoch != before.leader_epoch and after.unclean_epoch == epoch
            if is_unclean or after.leader != before.leader:
                yield NewLeader(name, index, after.leader, epoch, is_unclean)
