"""The steps that every heartbeat and every join of a member goes through (KIP-848).

1. Its subscription is taken in; if that or a topic has changed, the group gets a new epoch.
2. A group whose epoch is ahead of its target gets a new target, at most once in an interval.
3. The member goes a step towards its target.

Each step adds the records that make it true to the draft.
"""

from __future__ import annotations

import logging
import uuid

from ottla.coordinator import consumer_records as formats
from ottla.coordinator.assignors import ASSIGNORS, known_assignors
from ottla.coordinator.assignors.model import MemberSpec
from ottla.coordinator.consumer_group import ConsumerGroup
from ottla.coordinator.consumer_group_draft import Draft
from ottla.coordinator.consumer_group_patterns import CHANGED_AND_KNOWN, SAME, PatternRefresh
from ottla.coordinator.consumer_group_reconciliation import Goal, Owned, reconcile
from ottla.coordinator.consumer_group_timeouts import ConsumerTimeouts
from ottla.coordinator.consumer_group_topics import TopicHashes, spec_of, topic_ids_of
from ottla.coordinator.consumer_records import (
    NO_PARTITIONS,
    STABLE,
    UNREVOKED,
    MemberMetadata,
    Partitions,
    TargetEpoch,
)
from ottla.coordinator.group_context import GroupContext

log = logging.getLogger("ottla.coordinator")

TopicIds = frozenset[uuid.UUID]


class ConsumerRebalance:
    def __init__(
        self,
        context: GroupContext,
        hashes: TopicHashes,
        patterns: PatternRefresh,
        timeouts: ConsumerTimeouts,
    ) -> None:
        self._context = context
        self._hashes = hashes
        self._patterns = patterns
        self._timeouts = timeouts

    # -- 1. the subscription ----------------------------------------------------------------

    def take_in(self, draft: Draft, metadata: MemberMetadata) -> bool:
        """Whether the member has changed what it subscribes to."""
        draft.change_metadata(metadata)
        has_new_names = metadata.topics != draft.old_metadata.topics
        change = self._patterns.look_at(draft)
        is_other = has_new_names or change == CHANGED_AND_KNOWN
        group = draft.group
        if is_other or group.needs_refresh or group.epoch < group.refreshed_epoch:
            self._refresh(draft, is_other)
        return has_new_names or change != SAME

    def _refresh(self, draft: Draft, is_other: bool) -> None:
        group = draft.group
        metadata_hash = self._hashes.of_all(draft.subscribed_names(), self._context.image)
        if is_other or metadata_hash != group.metadata_hash:
            draft.bump_epoch(metadata_hash)
            log.info("group %r: epoch %d", group.group_id, draft.group_epoch)
        if group.has_partition_metadata:
            draft.records.append(formats.tombstone(formats.PARTITION_METADATA_KEY, group.group_id))
        group.needs_refresh = False
        group.refreshed_epoch = draft.group_epoch

    # -- 2. the target ----------------------------------------------------------------------

    def assign(self, draft: Draft) -> tuple[int, Partitions]:
        """The epoch of the group's target, and the member's part of it."""
        group = draft.group
        if group.target_epoch >= draft.group_epoch or not self._may_assign(group):
            return group.target_epoch, draft.target()
        name = self._assignor_name(draft)
        members, ids_by_names = self._specs(draft)
        with_racks = any(member.rack_id is not None for member in members)
        image = self._context.image
        topics = {
            topic_id: spec_of(
                image.topics[image.topic_names_by_id[topic_id]], image, with_racks=with_racks
            )
            for topic_id in frozenset().union(*ids_by_names.values())
        }
        assigned = ASSIGNORS[name](members, topics)
        log.info(
            "group %r: %s assigns %d members for epoch %d",
            group.group_id,
            name,
            len(members),
            draft.group_epoch,
        )
        for member in members:
            target = assigned[member.member_id]
            if group.targets.get(member.member_id) != target:
                draft.records.append(
                    formats.target_member_record(group.group_id, member.member_id, target)
                )
        made = TargetEpoch(draft.group_epoch, self._context.clock.wall_ms())
        draft.records.append(formats.target_record(group.group_id, made))
        return draft.group_epoch, assigned.get(draft.member_id, NO_PARTITIONS)

    def _may_assign(self, group: ConsumerGroup) -> bool:
        interval_ms = self._timeouts.assignment_interval_ms(group.group_id)
        if group.targets_made_ms == 0 or interval_ms == 0:
            return True
        # A clock that was set back must not hold the group up until it is where it was.
        age_ms = self._context.clock.wall_ms() - group.targets_made_ms
        return not 0 <= age_ms < interval_ms

    def _assignor_name(self, draft: Draft) -> str:
        """The one that most members ask for."""
        counts = draft.group.assignor_counts.copy()
        if draft.old_metadata.assignor:
            counts[draft.old_metadata.assignor] -= 1
        if draft.metadata.assignor:
            counts[draft.metadata.assignor] += 1
        return preferred_assignor(counts, self._context.config.group_consumer_assignors)

    def _specs(self, draft: Draft) -> tuple[list[MemberSpec], dict[frozenset[str], TopicIds]]:
        group = draft.group
        ids_by_names: dict[frozenset[str], TopicIds] = {}
        own = (draft.member_id, draft.metadata, draft.target())
        described = [
            own
            if member_id in (draft.member_id, draft.replaced_id)
            else (member_id, member.metadata, group.target_of(member_id))
            for member_id, member in group.members.items()
        ]
        if own not in described:
            described.append(own)
        specs = []
        for member_id, metadata, target in described:
            names = group.topics_of(metadata)
            topic_ids = ids_by_names.get(names)
            if topic_ids is None:
                topic_ids = ids_by_names[names] = topic_ids_of(names, self._context.image)
            specs.append(
                MemberSpec(member_id, metadata.instance_id, metadata.rack_id, topic_ids, target)
            )
        return specs, ids_by_names

    # -- 3. the member ----------------------------------------------------------------------

    def advance(
        self, draft: Draft, target: tuple[int, Partitions], owned: Owned, *, is_changed: bool
    ) -> None:
        """`is_changed`: the member subscribes to something else than before."""
        epoch, partitions = target
        current = draft.current
        if not is_changed and current.state == STABLE and current.member_epoch == epoch:
            return
        topic_ids = topic_ids_of(draft.group.topics_of(draft.metadata), self._context.image)
        goal = Goal(epoch, partitions, topic_ids, draft.is_free, is_changed)
        new = reconcile(current, goal, owned)
        if new == current:
            return
        draft.change_current(new)
        if draft.metadata.classic is not None:
            return  # it has other time-outs
        group_id, member_id = draft.group.group_id, draft.member_id
        if new.state == UNREVOKED:
            self._timeouts.expect_revocation(
                group_id, member_id, new.member_epoch, draft.metadata.rebalance_timeout_ms
            )
        else:
            self._timeouts.revocation_is_over(group_id, member_id)


def preferred_assignor(counts: dict[str, int], configured: tuple[str, ...]) -> str:
    """The one with most votes; of those with as many, and without any, the one named first."""
    return max(known_assignors(configured), key=lambda name: counts.get(name, 0))
