"""How far a query has read: the offsets that Spark keeps in its checkpoint, and what they mean.

Pure. The text is the stock connector's, {"topic": {"partition": next offset}}, plus one entry under
a name that no topic can have. It holds what a restart needs and no broker can tell afterwards: the
ids of the topics, where partitions begin that appear for the first time, the consumer group, who
commits to it and where. So the records between two positions are a function of the two alone.

Two positions with the same text are the same to Spark: what has not changed must be handed back as
it came, or Spark runs a batch for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ottla.base.ids import TopicPartition
from ottla.spark.errors import OffsetError
from ottla.spark.ranges import OffsetRange

NOTES = "$ottla"

ByPartition = dict[TopicPartition, int]


@dataclass(slots=True)
class Position:
    """`next_offsets` are exclusive ends; `first_offsets` are of partitions that begin in here."""

    next_offsets: ByPartition
    topic_ids: dict[str, str]
    first_offsets: ByPartition = field(default_factory=dict)
    group_id: str = ""
    # Who reads: the time of the first run and some chance. Stays the same over restarts.
    query: str = ""
    servers: str = ""

    def as_spark(self) -> dict[str, Any]:
        notes: dict[str, Any] = {"ids": dict(sorted(self.topic_ids.items()))}
        if self.first_offsets:
            notes["first"] = _by_topic(self.first_offsets)
        if self.group_id:
            notes.update(group=self.group_id, query=self.query, servers=self.servers)
        return {**_by_topic(self.next_offsets), NOTES: notes}


def position_of(given: Mapping[str, Any]) -> Position:
    """Raises OffsetError for what some other source has written."""
    try:
        # The stock connector's own have no notes; a query may go on from them.
        notes = given.get(NOTES, {"ids": {}})
        topics = {topic: partitions for topic, partitions in given.items() if topic != NOTES}
        return Position(
            next_offsets=_by_partition(topics or {"": None}),
            topic_ids={str(topic): str(topic_id) for topic, topic_id in notes["ids"].items()},
            first_offsets=_by_partition(notes.get("first", {})),
            group_id=str(notes.get("group", "")),
            query=str(notes.get("query", "")),
            servers=str(notes.get("servers", "")),
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        raise OffsetError(
            f"the checkpoint holds offsets of another kind of source: {str(given)[:200]}; "
            "give this query a checkpointLocation of its own"
        ) from None


def ranges_between(start: Position, end: Position) -> list[OffsetRange]:
    """What lies between the two, a partition each, in order; nothing for partitions at rest."""
    found = []
    for (topic, partition), until in sorted(end.next_offsets.items()):
        place = (topic, partition)
        begin = end.first_offsets.get(place)
        if begin is None:
            begin = start.next_offsets.get(place)
        if begin is None:
            raise OffsetError(
                f"the checkpoint's offsets do not say where {topic}-{partition} begins: they are "
                "damaged, or not of this query"
            )
        if until > begin:
            found.append(OffsetRange(topic, partition, begin, until, end.topic_ids.get(topic, "")))
    return found


def _by_topic(offsets: ByPartition) -> dict[str, dict[str, int]]:
    nested: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        nested.setdefault(topic, {})[str(partition)] = offset
    return nested


def _by_partition(nested: Mapping[str, Any]) -> ByPartition:
    return {
        (topic, int(partition)): int(offset)
        for topic, partitions in nested.items()
        for partition, offset in partitions.items()
    }
