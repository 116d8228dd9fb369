"""When the regular expressions of a group are resolved, and what follows.

All expressions of a group are resolved together, so that one change of the topics leads to one new
assignment; at most every ten seconds, when one is new, when there are new topics, or when the last
time is long ago. It is done a part at a time by a timer, after the heartbeat that asked for it.
"""

from __future__ import annotations

import logging

from ottla.coordinator import consumer_records as formats
from ottla.coordinator.consumer_group import ConsumerGroup
from ottla.coordinator.consumer_group_draft import Draft
from ottla.coordinator.consumer_group_topics import TopicHashes
from ottla.coordinator.consumer_records import GroupEpoch, ResolvedPattern
from ottla.coordinator.group_context import GroupContext
from ottla.coordinator.shard import NOTHING, Outcome, Record
from ottla.coordinator.subscription_pattern import Resolution, compiled
from ottla.protocol.error_codes import NONE

log = logging.getLogger("ottla.coordinator")

REFRESH_INTERVAL_MS_MIN = 10_000

# What a member's new expression means for the assignment.
SAME, CHANGED, CHANGED_AND_KNOWN = range(3)

# No version of ours is one of Kafka's: whoever takes the log over resolves anew.
_NO_VERSION = 0
_NOTHING_FOUND = ResolvedPattern(frozenset(), _NO_VERSION, 0)


class PatternRefresh:
    def __init__(self, context: GroupContext, hashes: TopicHashes) -> None:
        self._context = context
        self._hashes = hashes
        self._running: dict[str, Resolution] = {}

    def look_at(self, draft: Draft) -> int:
        """Whether the member's expression is another one; begins a resolution if one is due."""
        old, new = draft.old_metadata.pattern, draft.metadata.pattern
        change = SAME if old == new else self._change(draft, old, new)
        counts = draft.pattern_counts()
        if counts and self._is_due(draft.group, counts):
            self._begin(draft.group, counts)
        return change

    def _change(self, draft: Draft, old: str, new: str) -> int:
        group = draft.group
        if old and group.pattern_counts[old] == 1:
            draft.records.append(formats.tombstone(formats.PATTERN_KEY, group.group_id, old))
        if not new:
            return CHANGED_AND_KNOWN
        if new not in group.pattern_counts:
            compiled(new)  # or the member is refused
        return CHANGED_AND_KNOWN if new in group.patterns else CHANGED

    def _is_due(self, group: ConsumerGroup, counts: dict[str, int]) -> bool:
        if group.group_id in self._running:
            return False
        if not group.patterns:
            return True
        now_ms = self._context.clock.wall_ms()
        age_ms = now_ms - next(iter(group.patterns.values())).resolved_ms
        # A clock that was set back must not stop it for long.
        if 0 <= age_ms <= REFRESH_INTERVAL_MS_MIN:
            return False
        interval_ms = self._context.config.group_consumer_regex_refresh_interval_ms
        is_complete = counts.keys() == group.patterns.keys()
        return not is_complete or group.has_new_topics or not 0 <= age_ms <= interval_ms

    def _begin(self, group: ConsumerGroup, counts: dict[str, int]) -> None:
        now_ms = self._context.clock.wall_ms()
        names = self._context.image.topics
        self._running[group.group_id] = Resolution(counts, names, now_ms)
        self._go_on_later(group.group_id)

    def _go_on_later(self, group_id: str) -> None:
        self._context.timers.schedule(f"pattern:{group_id}", 0, lambda: self._go_on(group_id))

    def _go_on(self, group_id: str) -> Outcome[None]:
        resolution = self._running.get(group_id)
        if resolution is None:
            return NOTHING
        if not resolution.go_on(self._context.clock):
            self._go_on_later(group_id)
            return NOTHING
        del self._running[group_id]
        group = self._context.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            return NOTHING
        return self._finish(group, resolution)

    def _finish(self, group: ConsumerGroup, resolution: Resolution) -> Outcome[None]:
        group_id = group.group_id
        group.has_new_topics = bool(self._context.image.topics.keys() - resolution.names)
        names = set(group.topic_counts)
        is_other = False
        records: list[Record] = []
        for pattern, found in resolution.result().items():
            if pattern not in group.pattern_counts:
                continue  # nobody wants it any more
            names |= found
            is_other |= group.patterns.get(pattern, _NOTHING_FOUND).topics != found
            value = ResolvedPattern(found, _NO_VERSION, resolution.started_ms)
            records.append(formats.pattern_record(group_id, pattern, value))
        metadata_hash = self._hashes.of_all(names, self._context.image)
        if is_other or metadata_hash != group.metadata_hash:
            group.refreshed_epoch = group.epoch + 1
            value_of_group = GroupEpoch(group.epoch + 1, metadata_hash)
            records.append(formats.group_record(group_id, value_of_group))
            log.info("group %r: epoch %d, other topics match", group_id, group.epoch + 1)

        def on_settled(code: int) -> None:
            if code != NONE:
                group.has_new_topics = True

        return Outcome(records, None, on_settled)

    def unload(self) -> None:
        self._running.clear()
