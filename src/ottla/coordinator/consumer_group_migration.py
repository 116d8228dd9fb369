"""A group changes its kind while its members go on: classic to consumer, consumer to classic.

Both ways are records and nothing else: those that take the group back as one kind, then those that
make it the other. Members keep their partitions; generation and group epoch are the same number.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Mapping

from ottla.base.errors import ProtocolError
from ottla.coordinator import consumer_records as formats
from ottla.coordinator import offsets_records
from ottla.coordinator.classic_group import ClassicGroup, ClassicMember
from ottla.coordinator.classic_groups import ClassicGroups
from ottla.coordinator.classic_rebalance import metadata_record
from ottla.coordinator.cluster_view import ClusterView
from ottla.coordinator.consumer_group import PROTOCOL_TYPE, ConsumerGroup, ConsumerMember
from ottla.coordinator.consumer_group_embedded import (
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
)
from ottla.coordinator.consumer_group_topics import TopicHashes
from ottla.coordinator.consumer_protocol import UnreadableSubscription
from ottla.coordinator.consumer_records import (
    NO_EPOCHS,
    STABLE,
    ClassicMetadata,
    CurrentAssignment,
    GroupEpoch,
    MemberMetadata,
    Partitions,
    TargetEpoch,
)
from ottla.coordinator.group_config import GroupConfig
from ottla.coordinator.group_context import GroupContext
from ottla.coordinator.member_memory import MemberMemory
from ottla.coordinator.shard import Record
from ottla.protocol.error_codes import GROUP_ID_NOT_FOUND, NOT_COORDINATOR

log = logging.getLogger("ottla.coordinator")

BOTH_WAYS, UPGRADE, DOWNGRADE = "bidirectional", "upgrade", "downgrade"


# -- classic to consumer ------------------------------------------------------------------------


def upgrade(
    group: ClassicGroup, config: GroupConfig, image: ClusterView, hashes: TopicHashes
) -> list[Record]:
    _check_upgrade(group, config)
    group_id = group.group_id
    members, targets, currents = [], [], []
    names: set[str] = set()
    try:
        for member in group.members.values():
            subscription = _subscription_of(group, member)
            names.update(subscription.topics)
            held = _held_by(member, group_id, image)
            metadata = _metadata_of(member, subscription)
            epochs = {one: dict.fromkeys(held[one], group.generation) for one in held}
            current = CurrentAssignment(
                group.generation, group.generation, STABLE, epochs, NO_EPOCHS
            )
            member_id = member.member_id
            members.append(formats.member_record(group_id, member_id, metadata))
            targets.append(formats.target_member_record(group_id, member_id, held))
            currents.append(formats.current_record(group_id, member_id, current))
    except UnreadableSubscription:
        raise _no_upgrade(group_id, "the embedded consumer protocol is malformed.") from None
    log.info("group %r: from classic to consumer with %d members", group_id, len(members))
    epoch = GroupEpoch(group.generation, hashes.of_all(names, image))
    return [
        *group.tombstones(),
        *members,
        formats.group_record(group_id, epoch),
        *targets,
        formats.target_record(group_id, TargetEpoch(group.generation, 0)),
        *currents,
    ]


def _check_upgrade(group: ClassicGroup, config: GroupConfig) -> None:
    policy = config.group_consumer_migration_policy.lower()
    if policy not in (BOTH_WAYS, UPGRADE):
        raise _no_upgrade(group.group_id, "online upgrade is disabled.")
    if group.protocol_type != PROTOCOL_TYPE:
        raise _no_upgrade(group.group_id, "the group does not use the consumer embedded protocol.")
    if len(group.members) > config.group_consumer_max_size:
        raise _no_upgrade(group.group_id, "the group size exceeds the consumer group maximum size.")


def _no_upgrade(group_id: str, reason: str) -> ProtocolError:
    message = f"Cannot upgrade classic group {group_id} to consumer group because {reason}"
    return ProtocolError(GROUP_ID_NOT_FOUND, message)


def _subscription_of(group: ClassicGroup, member: ClassicMember) -> Subscription:
    # Before its first generation a group has not agreed on a protocol: each speaks its favourite.
    protocol = group.protocol or member.protocols[0][0]
    return read_subscription(member.metadata_for(protocol))


def _held_by(member: ClassicMember, group_id: str, image: ClusterView) -> Partitions:
    if not member.assignment:
        return {}
    assignment = read_assignment(member.assignment)
    if assignment.user_data:
        # It would be lost.
        raise _no_upgrade(
            group_id,
            "an unsupported custom assignor is in use. Please refer to the documentation or "
            "switch to a default assignor before re-attempting the upgrade.",
        )
    return {
        image.topics[topic].topic_id: frozenset(partitions)
        for topic, partitions in assignment.partitions.items()
        if topic in image.topics and partitions
    }


def _metadata_of(member: ClassicMember, subscription: Subscription) -> MemberMetadata:
    return MemberMetadata(
        member.instance_id,
        subscription.rack_id,
        member.client_id,
        member.client_host,
        frozenset(subscription.topics),
        "",
        member.rebalance_timeout_ms,
        None,
        ClassicMetadata(member.session_timeout_ms, member.protocols),
    )


def scratch_group(group_id: str, records: Iterable[Record]) -> ConsumerGroup:
    """The group that these records will make, to decide with before they are written."""
    group = ConsumerGroup(group_id, MemberMemory())
    for record in records:
        kind = offsets_records.key_version(record.key)
        if kind in offsets_records.CONSUMER_GROUP_KEYS:
            _, part, value = formats.read_fact(kind, record)
            group.apply(kind, part, value)
    return group


# -- consumer to classic ------------------------------------------------------------------------


def may_downgrade(
    group: ConsumerGroup, leaving: Iterable[ConsumerMember], config: GroupConfig
) -> bool:
    gone = list(leaving)
    if not group.is_classic_without(gone):
        return False
    return _downgrade_fits(config, len(group.members) - len(gone))


def may_downgrade_replacing(
    group: ConsumerGroup, replaced: ConsumerMember, config: GroupConfig
) -> bool:
    """Whether a classic member that takes this one's place is the one that was missing."""
    if replaced.metadata.classic is not None or group.classic_count != len(group.members) - 1:
        return False
    return _downgrade_fits(config, len(group.members))


def _downgrade_fits(config: GroupConfig, size: int) -> bool:
    policy = config.group_consumer_migration_policy.lower()
    return policy in (BOTH_WAYS, DOWNGRADE) and size <= config.group_max_size


class Downgrade:
    """The classic group that takes a consumer group's place; its members are all classic ones."""

    def __init__(self, context: GroupContext, classic: ClassicGroups, group: ConsumerGroup) -> None:
        self._context = context
        self._classic = classic
        self._group = group
        self._members = {
            member_id: (member.metadata, group.target_of(member_id))
            for member_id, member in group.members.items()
        }

    def leave_out(self, member_id: str) -> None:
        del self._members[member_id]

    def put(self, member_id: str, metadata: MemberMetadata, target: Partitions) -> None:
        self._members[member_id] = (metadata, target)

    def records(self) -> list[Record]:
        from_now_ms = self._context.clock.wall_ms()
        group = ClassicGroup(self._group.group_id, from_now_ms, MemberMemory())
        group.protocol_type = PROTOCOL_TYPE
        group.generation = self._group.epoch
        for member_id, (metadata, _) in self._members.items():
            group.add(_classic_member(member_id, metadata))
        group.protocol = group.select_protocol()
        assignments = {
            member.member_id: self._assignment(
                member.metadata_for(group.protocol), member.member_id
            )
            for member in group.members.values()
        }
        log.info(
            "group %r: from consumer to classic with %d members", group.group_id, len(assignments)
        )
        stored = metadata_record(group.group_id, group.to_store(assignments))
        return [*self._group.tombstones(), stored]

    def _assignment(self, metadata: bytes, member_id: str) -> bytes:
        names = self._context.image.topic_names_by_id
        _, target = self._members[member_id]
        held = {names[one]: partitions for one, partitions in target.items() if one in names}
        try:
            version = read_subscription(metadata).version
        except UnreadableSubscription:
            version = 0  # only its favourite protocol was looked at when it joined
        return write_assignment(held, version)

    def settle(self, code: int, reason: str | None) -> None:
        """Its members are classic ones now; with a `reason` they have to join anew."""
        if code == NOT_COORDINATOR:
            return
        # Whatever became of the answer, it is what is in the log that counts.
        group = self._context.groups.get(self._group.group_id)
        if isinstance(group, ClassicGroup):
            for member in group.members.values():
                # The log keeps one protocol of each, and they may have more in common. Others may
                # have come while it was on its way to the followers: of them all are known.
                known = self._members.get(member.member_id)
                classic = None if known is None else known[0].classic
                if classic is not None:
                    group.update(
                        member,
                        classic.protocols,
                        member.rebalance_timeout_ms,
                        member.session_timeout_ms,
                    )
        self._classic.on_converted(self._group.group_id, reason)


def _classic_member(member_id: str, metadata: MemberMetadata) -> ClassicMember:
    classic = metadata.classic
    if classic is None:
        raise ProtocolError(GROUP_ID_NOT_FOUND, f"{member_id} does not use the classic protocol")
    return ClassicMember(
        member_id,
        metadata.instance_id,
        metadata.client_id,
        metadata.client_host,
        metadata.rebalance_timeout_ms,
        classic.session_timeout_ms,
        classic.protocols,
    )


def topic_ids_by_name(
    owned: Mapping[str, tuple[int, ...]], image: ClusterView
) -> dict[uuid.UUID, tuple[int, ...]]:
    return {
        image.topics[topic].topic_id: partitions
        for topic, partitions in owned.items()
        if topic in image.topics
    }
