"""The committed offsets of all groups of one shard, and those that wait for their transaction.

A commit within a transaction counts from its commit marker on. It loses against another commit of
the same partition that came after it, whichever is settled first: what is later in the log wins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from ottla.coordinator.offsets_records import Commit

NO_PRODUCER_ID = -1

OffsetKey = tuple[str, str, int]
"""Group, topic, partition."""

_NOTHING: dict[str, dict[int, Commit]] = {}


class CommittedOffsets:
    __slots__ = (
        "_pending",
        "_pending_count",
        "_pending_groups",
        "_pending_keys",
        "by_group",
        "count",
    )

    def __init__(self) -> None:
        self.by_group: dict[str, dict[str, dict[int, Commit]]] = {}
        self.count = 0
        # By producer id, each with its place in the order of the log; None stands for one that lost
        # against a later commit.
        self._pending: dict[int, dict[OffsetKey, tuple[int, Commit] | None]] = {}
        self._pending_count = 0
        self._pending_keys: Counter[OffsetKey] = Counter()
        self._pending_groups: Counter[str] = Counter()

    # -- looks ------------------------------------------------------------------------------

    def get(self, group_id: str, topic: str, partition: int) -> Commit | None:
        return self.by_group.get(group_id, _NOTHING).get(topic, {}).get(partition)

    def of_group(self, group_id: str) -> Mapping[str, Mapping[int, Commit]]:
        return self.by_group.get(group_id, _NOTHING)

    def has_group(self, group_id: str) -> bool:
        return group_id in self.by_group or group_id in self._pending_groups

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        return bool(self._pending_keys) and (group_id, topic, partition) in self._pending_keys

    def pending_of(self, group_id: str) -> list[OffsetKey]:
        if group_id not in self._pending_groups:
            return []
        return [key for key in self._pending_keys if key[0] == group_id]

    def pending_keys(self) -> list[OffsetKey]:
        return list(self._pending_keys)

    # -- replay -----------------------------------------------------------------------------

    def put(self, group_id: str, topic: str, partition: int, commit: Commit) -> None:
        """A plain commit, which is later in the log than all that wait."""
        self._put(group_id, topic, partition, commit)
        if self._pending_keys:
            self._outdate((group_id, topic, partition), self._pending_count)

    def _put(self, group_id: str, topic: str, partition: int, commit: Commit) -> None:
        topics = self.by_group.get(group_id)
        if topics is None:
            topics = self.by_group[group_id] = {}
        partitions = topics.get(topic)
        if partitions is None:
            partitions = topics[topic] = {}
        if partition not in partitions:
            self.count += 1
        partitions[partition] = commit

    def put_pending(self, producer_id: int, key: OffsetKey, commit: Commit) -> None:
        held = self._pending.setdefault(producer_id, {})
        if key not in held:
            self._pending_keys[key] += 1
            self._pending_groups[key[0]] += 1
        held[key] = (self._pending_count, commit)
        self._pending_count += 1

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        topics = self.by_group.get(group_id, _NOTHING)
        partitions = topics.get(topic)
        if partitions is not None and partitions.pop(partition, None) is not None:
            self.count -= 1
            if not partitions:
                del topics[topic]
                if not topics:
                    del self.by_group[group_id]
        key = (group_id, topic, partition)
        if key in self._pending_keys:
            for held in self._pending.values():
                if key in held:
                    del held[key]
                    self._forget_pending(key)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        for key, waiting in self._pending.pop(producer_id, {}).items():
            self._forget_pending(key)
            if committed and waiting is not None:
                place, commit = waiting
                self._put(*key, commit)
                self._outdate(key, place)

    def _outdate(self, key: OffsetKey, place: int) -> None:
        """Those that wait and are before this place in the log have lost."""
        if key in self._pending_keys:
            for held in self._pending.values():
                waiting = held.get(key)
                if waiting is not None and waiting[0] < place:
                    held[key] = None

    def _forget_pending(self, key: OffsetKey) -> None:
        self._pending_keys[key] -= 1
        if not self._pending_keys[key]:
            del self._pending_keys[key]
        self._pending_groups[key[0]] -= 1
        if not self._pending_groups[key[0]]:
            del self._pending_groups[key[0]]
