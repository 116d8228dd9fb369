"""A cluster as the driver sees it, in dictionaries that a test writes to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ottla.base.ids import TopicPartition
from ottla.spark.cluster_view import NOTHING, Committed, TopicFacts
from ottla.spark.option_values import EARLIEST, LATEST
from ottla.spark.source_options import Subscription


@dataclass
class MemoryView:
    facts: dict[str, TopicFacts] = field(default_factory=dict)
    first: dict[TopicPartition, int] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    # Of the first record at or after any time.
    by_time: dict[TopicPartition, int] = field(default_factory=dict)
    groups: dict[str, dict[TopicPartition, Committed]] = field(default_factory=dict)
    closed: bool = False

    def put(self, topic: str, *ends: int, topic_id: str = "id", first: int = 0) -> None:
        self.facts[topic] = TopicFacts(topic_id, tuple(range(len(ends))))
        for partition, end in enumerate(ends):
            self.first.setdefault((topic, partition), first)
            self.ends[topic, partition] = end

    def topics(
        self, subscription: Subscription, expected: Mapping[str, str] = NOTHING
    ) -> dict[str, TopicFacts]:
        wanted = subscription.topics or tuple(subscription.partitions)
        return {name: one for name, one in self.facts.items() if not wanted or name in wanted}

    def offsets(self, at: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        found = {}
        for place, moment in at.items():
            source = {EARLIEST: self.first, LATEST: self.ends}.get(moment, self.by_time)
            if place in source:
                found[place] = source[place]
        return found

    def committed(
        self, group_id: str, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, Committed]:
        known = self.groups.get(group_id, {})
        return {place: known[place] for place in partitions if place in known}

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, Committed]) -> None:
        self.groups.setdefault(group_id, {}).update(offsets)

    def close(self) -> None:
        self.closed = True
