"""One consumer group (KIP-848): what the log holds of it, and questions about that.

Owns the members, their targets and current assignments, and who holds each partition. It changes by
`apply` alone, with what a record says, live and while loading; what it keeps besides (when a member
was heard of, what has to be looked at again) is marked as such and lost with the process.

Invariant G1: a partition has at most one holder. A member holds what it is assigned and what it has
been asked to give up and has not given up yet; who is to get a partition waits for its holder.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ottla.coordinator import consumer_records as formats
from ottla.coordinator.consumer_records import (
    LEAVING,
    NO_EPOCHS,
    NO_PARTITIONS,
    STABLE,
    CurrentAssignment,
    Epochs,
    GroupEpoch,
    MemberMetadata,
    Partitions,
    ResolvedPattern,
    TargetEpoch,
)
from ottla.coordinator.group import CONSUMER
from ottla.coordinator.member_memory import MEMBER_BYTES, MemberMemory
from ottla.coordinator.shard import Record
from ottla.protocol.error_codes import (
    ILLEGAL_GENERATION,
    NON_EMPTY_GROUP,
    NONE,
    STALE_MEMBER_EPOCH,
    UNKNOWN_MEMBER_ID,
    UNSUPPORTED_VERSION,
)

PROTOCOL_TYPE = "consumer"
MEMBER_EPOCH_COMMITS_FROM = 9

# Of a group and of its target. Not 0: a member that gets it would seem to join.
FIRST_EPOCH = 1

NEW_METADATA = MemberMetadata(None, None, "", "", frozenset(), "", -1, None, None)
NEW_CURRENT = CurrentAssignment(0, -1, STABLE, NO_EPOCHS, NO_EPOCHS)
_GONE = CurrentAssignment(LEAVING, LEAVING, STABLE, NO_EPOCHS, NO_EPOCHS)


def size_of(metadata: MemberMetadata) -> int:
    """What a member with this holds in memory, about."""
    held = MEMBER_BYTES + len(metadata.pattern) + sum(64 + len(name) for name in metadata.topics)
    if metadata.classic is not None:
        held += sum(len(name) + len(data) for name, data in metadata.classic.protocols)
    return held


class ConsumerMember:
    """`metadata` and `current` are the member's two records.

    Not of the log: its session ends at `deadline_ms` unless it is heard of; `timer_due_ms` is when
    its timer looks next, which may be earlier.
    """

    __slots__ = ("current", "deadline_ms", "member_id", "metadata", "timer_due_ms")

    def __init__(self, member_id: str) -> None:
        self.member_id = member_id
        self.metadata = NEW_METADATA
        self.current = NEW_CURRENT
        self.deadline_ms = 0
        self.timer_due_ms: int | None = None

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.current.state == STABLE and self.current.member_epoch == epoch


class ConsumerGroup:
    """Not of the log: `needs_refresh`, `refreshed_epoch` and `has_new_topics`.

    `needs_refresh`: a subscribed topic may have changed since the metadata hash was made.
    `refreshed_epoch`: the group epoch that the last look at the topics has led to; if the group is
    not there, the record was lost. `has_new_topics`: there may be topics that no regular expression
    was tried on.
    """

    kind = CONSUMER
    protocol_type = PROTOCOL_TYPE

    __slots__ = (
        "_memory",
        "assignor_counts",
        "classic_count",
        "classic_protocol_counts",
        "epoch",
        "group_id",
        "has_new_topics",
        "has_partition_metadata",
        "holders",
        "members",
        "metadata_hash",
        "needs_refresh",
        "pattern_counts",
        "patterns",
        "refreshed_epoch",
        "static_members",
        "target_epoch",
        "targets",
        "targets_made_ms",
        "topic_counts",
    )

    def __init__(self, group_id: str, memory: MemberMemory) -> None:
        self._memory = memory
        self.group_id = group_id
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.target_epoch = FIRST_EPOCH
        self.targets_made_ms = 0
        self.members: dict[str, ConsumerMember] = {}
        self.targets: dict[str, Partitions] = {}
        self.holders: dict[uuid.UUID, dict[int, str]] = {}
        self.static_members: dict[str, str] = {}
        self.patterns: dict[str, ResolvedPattern] = {}
        self.topic_counts: Counter[str] = Counter()
        self.pattern_counts: Counter[str] = Counter()
        self.assignor_counts: Counter[str] = Counter()
        self.classic_count = 0
        self.classic_protocol_counts: Counter[str] = Counter()
        self.has_partition_metadata = False
        self.needs_refresh = True
        self.refreshed_epoch = 0
        self.has_new_topics = True

    # -- what records say -------------------------------------------------------------------

    def apply(self, kind: int, part: str, value: Any) -> None:
        _APPLY[kind](self, part, value)

    def _apply_group(self, _: str, value: GroupEpoch | None) -> None:
        if value is not None:
            self.epoch, self.metadata_hash = value

    def _apply_partition_metadata(self, _: str, value: Any) -> None:
        self.has_partition_metadata = value is not None

    def _apply_member(self, member_id: str, value: MemberMetadata | None) -> None:
        member = self.members.get(member_id)
        if value is not None:
            if member is None:
                member = self.members[member_id] = ConsumerMember(member_id)
                self._memory.held += size_of(NEW_METADATA)
            self._change_metadata(member, value)
        elif member is not None:
            self._change_metadata(member, NEW_METADATA)
            self._release(member_id, member.current)
            self._memory.held -= size_of(NEW_METADATA)
            del self.members[member_id]

    def _change_metadata(self, member: ConsumerMember, new: MemberMetadata) -> None:
        old = member.metadata
        member.metadata = new
        self._memory.held += size_of(new) - size_of(old)
        _recount(self.topic_counts, old.topics, new.topics)
        _recount(self.pattern_counts, _named(old.pattern), _named(new.pattern))
        _recount(self.assignor_counts, _named(old.assignor), _named(new.assignor))
        _recount(self.classic_protocol_counts, _protocol_names(old), _protocol_names(new))
        self.classic_count += (new.classic is not None) - (old.classic is not None)
        # An instance may have come back as another member before the one that it was is gone.
        if old.instance_id is not None and self.static_members.get(old.instance_id) == (
            member.member_id
        ):
            del self.static_members[old.instance_id]
        if new.instance_id is not None:
            self.static_members[new.instance_id] = member.member_id

    def _apply_target(self, _: str, value: TargetEpoch | None) -> None:
        self.target_epoch, self.targets_made_ms = value or (-1, 0)

    def _apply_target_member(self, member_id: str, value: Partitions | None) -> None:
        if value is None:
            self.targets.pop(member_id, None)
        else:
            self.targets[member_id] = value

    def _apply_current(self, member_id: str, value: CurrentAssignment | None) -> None:
        member = self.members.get(member_id)
        if member is None:
            if value is None:
                return
            member = self.members[member_id] = ConsumerMember(member_id)
            self._memory.held += size_of(NEW_METADATA)
        self._release(member_id, member.current)
        member.current = value or _GONE
        for held in (member.current.assigned, member.current.revoking):
            for topic_id, partitions in held.items():
                holders = self.holders.setdefault(topic_id, {})
                for partition in partitions:
                    holders[partition] = member_id

    def _release(self, member_id: str, current: CurrentAssignment) -> None:
        for held in (current.assigned, current.revoking):
            for topic_id, partitions in held.items():
                holders = self.holders.get(topic_id, {})
                for partition in partitions:
                    if holders.get(partition) == member_id:
                        del holders[partition]
                if not holders:
                    self.holders.pop(topic_id, None)

    def _apply_pattern(self, pattern: str, value: ResolvedPattern | None) -> None:
        if value is None:
            self.patterns.pop(pattern, None)
        else:
            self.patterns[pattern] = value

    # -- questions --------------------------------------------------------------------------

    def topics_of(self, metadata: MemberMetadata) -> frozenset[str]:
        """Names that a member subscribes to, by themselves or by a pattern; not all need exist."""
        resolved = self.patterns.get(metadata.pattern) if metadata.pattern else None
        if resolved is None:
            return metadata.topics
        return metadata.topics | resolved.topics if metadata.topics else resolved.topics

    def holder_of(self, topic_id: uuid.UUID, partition: int) -> str | None:
        return self.holders.get(topic_id, {}).get(partition)

    def target_of(self, member_id: str) -> Partitions:
        return self.targets.get(member_id, NO_PARTITIONS)

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        return self.members.get(self.static_members.get(instance_id, ""))

    def waits_for_others(self, member: ConsumerMember) -> bool:
        """Whether somebody still holds a partition that the member is to get."""
        for topic_id, partitions in self.target_of(member.member_id).items():
            assigned = member.current.assigned.get(topic_id, {})
            for partition in partitions:
                if partition not in assigned and self.holder_of(topic_id, partition) is not None:
                    return True
        return False

    def supports_classic(self, protocol_type: str, protocols: Iterable[str]) -> bool:
        """Whether a classic member that offers these has one in common with all other such."""
        if protocol_type != PROTOCOL_TYPE:
            return False
        counts = self.classic_protocol_counts
        return any(counts[name] == self.classic_count for name in protocols)

    def is_classic_without(self, leaving: Iterable[ConsumerMember]) -> bool:
        """Whether only classic members are left then, and some are."""
        gone = list(leaving)
        classic_gone = sum(member.metadata.classic is not None for member in gone)
        left = len(self.members) - len(gone)
        return left > 0 and self.classic_count - classic_gone == left

    # -- what both kinds of group are asked -------------------------------------------------

    def state_name(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        if all(member.is_reconciled_to(self.target_epoch) for member in self.members.values()):
            return "Stable"
        return "Reconciling"

    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        api_version: int,
        *,
        transactional: bool,
    ) -> int:
        """An epoch that is no more may still be good: see `check_older_commit`."""
        if generation < 0 and not self.members:
            return NONE
        if transactional and generation < 0 and not member_id and instance_id is None:
            return NONE
        member = self.members.get(member_id)
        if member is None:
            return UNKNOWN_MEMBER_ID
        is_classic = member.metadata.classic is not None
        if not transactional and not is_classic and api_version < MEMBER_EPOCH_COMMITS_FROM:
            return UNSUPPORTED_VERSION
        return _epoch_refusal(member, generation)

    def check_older_commit(
        self, member_id: str, member_epoch: int, partitions: Iterable[tuple[uuid.UUID, int]]
    ) -> int:
        """A member may not know its new epoch yet and still hold what it commits (KIP-1251)."""
        member = self.members.get(member_id)
        if member is None:
            return UNKNOWN_MEMBER_ID
        current = member.current
        if member_epoch > current.member_epoch:
            return _epoch_refusal(member, member_epoch)
        for topic_id, partition in partitions:
            since = _epoch_in(current.assigned, topic_id, partition)
            if since is None:
                since = _epoch_in(current.revoking, topic_id, partition)
            if since is None or member_epoch < since:
                return _epoch_refusal(member, member_epoch)
        return NONE

    def check_fetch(self, member_id: str | None, member_epoch: int) -> int:
        if member_id is None and member_epoch < 0:
            return NONE
        member = self.members.get(member_id or "")
        return UNKNOWN_MEMBER_ID if member is None else _epoch_refusal(member, member_epoch)

    def check_delete(self) -> int:
        return NON_EMPTY_GROUP if self.members else NONE

    def check_offset_delete(self) -> int:
        return NONE

    def is_subscribed_to(self, topic: str) -> bool:
        if topic in self.topic_counts:
            return True
        return any(topic in resolved.topics for resolved in self.patterns.values())

    def expiry_starts_ms(self, commit_timestamp_ms: int) -> int | None:
        return commit_timestamp_ms

    def may_vanish(self) -> bool:
        return not self.members

    def tombstones(self) -> list[Record]:
        return self.tombstones_with(self.members)

    def tombstones_with(self, member_ids: Iterable[str]) -> list[Record]:
        """As if these were its members. Kafka wants this order: a group goes after all of its."""
        group_id = self.group_id
        members = list(member_ids)
        records = [
            *(formats.tombstone(formats.CURRENT_KEY, group_id, one) for one in members),
            *(formats.tombstone(formats.TARGET_MEMBER_KEY, group_id, one) for one in members),
            formats.tombstone(formats.TARGET_KEY, group_id),
            *(formats.tombstone(formats.MEMBER_KEY, group_id, one) for one in members),
            *(formats.tombstone(formats.PATTERN_KEY, group_id, one) for one in self.patterns),
        ]
        if self.has_partition_metadata:
            records.append(formats.tombstone(formats.PARTITION_METADATA_KEY, group_id))
        records.append(formats.tombstone(formats.GROUP_KEY, group_id))
        return records


_APPLY: Mapping[int, Callable[[ConsumerGroup, str, Any], None]] = {
    formats.GROUP_KEY: ConsumerGroup._apply_group,
    formats.PARTITION_METADATA_KEY: ConsumerGroup._apply_partition_metadata,
    formats.MEMBER_KEY: ConsumerGroup._apply_member,
    formats.TARGET_KEY: ConsumerGroup._apply_target,
    formats.TARGET_MEMBER_KEY: ConsumerGroup._apply_target_member,
    formats.CURRENT_KEY: ConsumerGroup._apply_current,
    formats.PATTERN_KEY: ConsumerGroup._apply_pattern,
}


def _recount(counts: Counter[str], old: Iterable[str], new: Iterable[str]) -> None:
    """A count of 0 is none: the names that are counted are those that matter."""
    for name in old:
        if counts[name] == 1:
            del counts[name]
        else:
            counts[name] -= 1
    for name in new:
        counts[name] += 1


def _named(name: str | None) -> tuple[str, ...]:
    return (name,) if name else ()


def _protocol_names(metadata: MemberMetadata) -> list[str]:
    return [] if metadata.classic is None else [name for name, _ in metadata.classic.protocols]


def _epoch_refusal(member: ConsumerMember, epoch: int) -> int:
    if epoch == member.current.member_epoch:
        return NONE
    return STALE_MEMBER_EPOCH if member.metadata.classic is None else ILLEGAL_GENERATION


def _epoch_in(held: Epochs, topic_id: uuid.UUID, partition: int) -> int | None:
    return held.get(topic_id, {}).get(partition)
