"""A decision about one member while it is being made: the records so far, and what they will make.

Nothing of the group changes here. A member that takes the place of another one with its instance id
is drafted under its new id, with everything that the other had.
"""

from __future__ import annotations

import uuid

from ottla.coordinator import consumer_records as formats
from ottla.coordinator.consumer_group import (
    NEW_CURRENT,
    NEW_METADATA,
    ConsumerGroup,
    ConsumerMember,
)
from ottla.coordinator.consumer_records import (
    CurrentAssignment,
    GroupEpoch,
    MemberMetadata,
    Partitions,
)
from ottla.coordinator.shard import Record


class Draft:
    """`old_metadata` is what the group still counts; `group_epoch` is as the records make it."""

    __slots__ = (
        "current",
        "group",
        "group_epoch",
        "member",
        "member_id",
        "metadata",
        "old_current",
        "old_metadata",
        "records",
        "replaced_id",
    )

    def __init__(
        self,
        group: ConsumerGroup,
        member_id: str,
        member: ConsumerMember | None,
        records: list[Record],
    ) -> None:
        self.group = group
        self.member_id = member_id
        self.member = member
        self.records = records
        self.replaced_id: str | None = None
        self.old_metadata = NEW_METADATA if member is None else member.metadata
        self.old_current = NEW_CURRENT if member is None else member.current
        self.metadata = self.old_metadata
        self.current = self.old_current
        self.group_epoch = group.epoch

    def take_place_of(self, replaced: ConsumerMember) -> None:
        group = self.group
        self.replaced_id = replaced.member_id
        self.old_metadata = self.metadata = replaced.metadata
        self.old_current = self.current = replaced.current._replace(
            member_epoch=0, previous_epoch=0
        )
        target = group.target_of(replaced.member_id)
        self.records += (
            *formats.member_tombstones(group.group_id, replaced.member_id),
            formats.member_record(group.group_id, self.member_id, self.metadata),
            formats.target_member_record(group.group_id, self.member_id, target),
            formats.current_record(group.group_id, self.member_id, self.current),
        )

    def change_metadata(self, metadata: MemberMetadata) -> None:
        if metadata != self.old_metadata:
            self.metadata = metadata
            self.records.append(
                formats.member_record(self.group.group_id, self.member_id, metadata)
            )

    def change_current(self, current: CurrentAssignment) -> None:
        self.current = current
        self.records.append(formats.current_record(self.group.group_id, self.member_id, current))

    def bump_epoch(self, metadata_hash: int) -> None:
        self.group_epoch += 1
        value = GroupEpoch(self.group_epoch, metadata_hash)
        self.records.append(formats.group_record(self.group.group_id, value))

    # -- how the group will be --------------------------------------------------------------

    def target(self) -> Partitions:
        """The target so far."""
        return self.group.target_of(self.replaced_id or self.member_id)

    def is_free(self, topic_id: uuid.UUID, partition: int) -> bool:
        """Whether nobody else holds it."""
        holder = self.group.holder_of(topic_id, partition)
        return holder is None or holder in (self.member_id, self.replaced_id)

    def pattern_counts(self) -> dict[str, int]:
        counts = dict(self.group.pattern_counts)
        old, new = self.old_metadata.pattern, self.metadata.pattern
        if old != new:
            if old and counts[old] == 1:
                del counts[old]
            elif old:
                counts[old] -= 1
            if new:
                counts[new] = counts.get(new, 0) + 1
        return counts

    def subscribed_names(self) -> set[str]:
        """Of the whole group; not all need exist."""
        group = self.group
        counts, new = group.topic_counts, self.metadata.topics
        gone = {name for name in self.old_metadata.topics - new if counts[name] == 1}
        names = set(counts) - gone
        names |= new
        dropped = self.old_metadata.pattern
        is_last = dropped != self.metadata.pattern and group.pattern_counts[dropped] == 1
        for pattern, resolved in group.patterns.items():
            if not (is_last and pattern == dropped):
                names |= resolved.topics
        return names
