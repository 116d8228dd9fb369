"""Members that leave a consumer group, or are made to, and what becomes of the group.

If only classic members are left, the group goes back to the classic protocol (a downgrade), if
`group.consumer.migration.policy` lets it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from ottla.coordinator import consumer_records as formats
from ottla.coordinator.classic_groups import ClassicGroups
from ottla.coordinator.consumer_group import ConsumerGroup, ConsumerMember
from ottla.coordinator.consumer_group_migration import Downgrade, may_downgrade
from ottla.coordinator.consumer_group_timeouts import ConsumerTimeouts
from ottla.coordinator.consumer_group_topics import TopicHashes
from ottla.coordinator.consumer_records import LEAVING_STATIC, NO_EPOCHS, GroupEpoch
from ottla.coordinator.group_context import GroupContext
from ottla.coordinator.shard import Outcome, R, Record
from ottla.protocol.error_codes import NOT_COORDINATOR

log = logging.getLogger("ottla.coordinator")


class ConsumerDepartures:
    def __init__(self, context: GroupContext, hashes: TopicHashes, classic: ClassicGroups) -> None:
        self._context = context
        self._hashes = hashes
        self._classic = classic
        self.timeouts = ConsumerTimeouts(context, self._fence)

    def _fence(self, group: ConsumerGroup, member: ConsumerMember, reason: str) -> Outcome[None]:
        log.info("group %r: %r is out, %s", group.group_id, member.member_id, reason)
        return self.remove(group, [member], None)

    def remove(
        self, group: ConsumerGroup, leaving: Iterable[ConsumerMember], response: R
    ) -> Outcome[R]:
        gone = list(leaving)
        if not gone:
            return Outcome((), response)
        if may_downgrade(group, gone, self._context.config):
            downgrade = Downgrade(self._context, self._classic, group)
            for member in gone:
                downgrade.leave_out(member.member_id)
            return Outcome(
                downgrade.records(),
                response,
                lambda code: self._on_downgraded(group, gone, downgrade, code),
            )
        records = self._removal(group, gone)
        return Outcome(records, response, lambda code: self._on_removed(group, gone, code))

    def _on_downgraded(
        self, group: ConsumerGroup, gone: list[ConsumerMember], downgrade: Downgrade, code: int
    ) -> None:
        downgrade.settle(code, "it was a consumer group until its last such member left")
        if self._context.groups.get(group.group_id) is group:
            # It could not be written: they are members still, and may have to go once more.
            self._on_removed(group, gone, code)

    def _on_removed(self, group: ConsumerGroup, gone: list[ConsumerMember], code: int) -> None:
        if code == NOT_COORDINATOR:
            return
        for member in gone:
            present = group.members.get(member.member_id)
            if present is member:
                # The records could not be written: it may stay, and has to be heard of again.
                self.timeouts.resume(group, member)
            elif present is None:
                # Else it has joined again meanwhile, and the timers are its own.
                self.timeouts.forget(group.group_id, member.member_id)

    def _removal(self, group: ConsumerGroup, gone: list[ConsumerMember]) -> list[Record]:
        group_id = group.group_id
        records: list[Record] = []
        counts = group.topic_counts.copy()
        pattern_counts = group.pattern_counts.copy()
        for member in gone:
            records += formats.member_tombstones(group_id, member.member_id)
            counts.subtract(member.metadata.topics)
            if member.metadata.pattern:
                pattern_counts[member.metadata.pattern] -= 1
        names = {name for name, count in counts.items() if count > 0}
        for pattern, count in pattern_counts.items():
            if count == 0:
                records.append(formats.tombstone(formats.PATTERN_KEY, group_id, pattern))
            elif pattern in group.patterns:
                names |= group.patterns[pattern].topics
        metadata_hash = self._hashes.of_all(names, self._context.image)
        records.append(formats.group_record(group_id, GroupEpoch(group.epoch + 1, metadata_hash)))
        return records

    def leave_for_a_while(
        self, group: ConsumerGroup, member: ConsumerMember, response: R
    ) -> Outcome[R]:
        """Its instance keeps its place until the session ends; whoever comes back starts at 0."""
        kept = {
            topic_id: dict.fromkeys(epochs, 0)
            for topic_id, epochs in member.current.assigned.items()
        }
        current = member.current._replace(
            member_epoch=LEAVING_STATIC, assigned=kept, revoking=NO_EPOCHS
        )
        record = formats.current_record(group.group_id, member.member_id, current)
        return Outcome([record], response)
