"""What the next batch of a streaming query reads: a machine over facts, without a connection.

Given where the query is and what the cluster has now, it says where the batch ends, or what is
lost. It never moves a partition back and never skips a record unless told that loss is no failure,
and hands the very same position back when there is nothing new.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ottla.base.ids import TopicPartition
from ottla.spark.admission import shares
from ottla.spark.boundaries import NAMED_MAX, listed
from ottla.spark.cluster_view import TopicFacts
from ottla.spark.errors import DataLoss
from ottla.spark.offsets import ByPartition, Position
from ottla.spark.source_options import Subscription

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Losses:
    """failOnDataLoss: an error, or a warning and on."""

    fail: bool

    def report(self, what: str, remedy: str) -> None:
        if self.fail:
            raise DataLoss(f"{what}. {remedy}, or failOnDataLoss=false to go on without them")
        log.warning("%s; going on, as failOnDataLoss=false says", what)


def partitions_of(topics: Mapping[str, TopicFacts]) -> list[TopicPartition]:
    return [(topic, one) for topic, facts in sorted(topics.items()) for one in facts.partitions]


def without_lost_topics(
    position: Position,
    topics: Mapping[str, TopicFacts],
    losses: Losses,
    subscription: Subscription,
) -> Position:
    """`position` without what is gone: partitions that exist no more, those of a topic that is
    another one under the same name, and those that are not read any more."""
    known = set(partitions_of(topics))
    missing = [place for place in position.next_offsets if place not in known]
    gone = [place for place in missing if subscription.wants(*place)]
    foreign = [place for place in missing if place not in gone]
    if foreign:
        losses.report(
            f"the checkpoint is of a query that has read {listed(foreign)}, and this one "
            f"subscribes to {subscription}",
            "Give this query a checkpointLocation of its own, or subscribe to what it has read",
        )
    if gone:
        losses.report(
            f"partitions that this query was reading exist no more: {listed(gone)}; it had read up "
            f"to {_reached(position, gone)}",
            "Records may have been lost with them. Start again with a new checkpointLocation",
        )
    recreated = {
        topic
        for topic, topic_id in position.topic_ids.items()
        if topic in topics and topics[topic].topic_id != topic_id
    }
    for topic in sorted(recreated):
        reached = {
            partition: offset
            for (name, partition), offset in sorted(position.next_offsets.items())
            if name == topic
        }
        losses.report(
            f"topic {topic} was deleted and created again since this query read it (id "
            f"{position.topic_ids[topic]}, now {topics[topic].topic_id}); it had read up to "
            f"{reached}, and those offsets mean other records now",
            "Start again with a new checkpointLocation and startingOffsets=earliest",
        )
    if not missing and not recreated:
        return position
    return Position(
        next_offsets={
            place: offset
            for place, offset in position.next_offsets.items()
            if place in known and place[0] not in recreated
        },
        topic_ids={
            topic: topic_id
            for topic, topic_id in position.topic_ids.items()
            if topic in topics and topic not in recreated
        },
        group_id=position.group_id,
        query=position.query,
        servers=position.servers,
    )


def _reached(position: Position, places: list[TopicPartition]) -> dict[str, int]:
    """For a message: of as many as are named there."""
    some = sorted(places)[:NAMED_MAX]
    return {f"{topic}-{one}": position.next_offsets[topic, one] for topic, one in some}


def check_new_partitions(first: ByPartition, losses: Losses) -> None:
    """A partition that appears is read from its first record; it should still have it."""
    late = {place: offset for place, offset in first.items() if offset > 0}
    if late:
        (topic, partition), offset = min(late.items())
        losses.report(
            f"{topic}-{partition} is new to this query and begins at offset {offset}: records "
            "before it are deleted already",
            "Start again with a new checkpointLocation and startingOffsets=earliest",
        )


def receded(position: Position, latest: ByPartition) -> ByPartition:
    """Partitions whose end lies before what was read already: a leader may know less for a moment;
    for longer, the log was cut."""
    return {
        place: latest[place]
        for place, offset in position.next_offsets.items()
        if place in latest and latest[place] < offset
    }


def after_cut(position: Position, ends: ByPartition, losses: Losses) -> Position:
    """`position`, with the partitions that are in `ends` there: what comes behind is new."""
    for (topic, partition), end in sorted(ends.items()):
        losses.report(
            f"{topic}-{partition} ends at offset {end}, but this query is at "
            f"{position.next_offsets[topic, partition]}: its log was cut, or startingOffsets is "
            "beyond its end",
            "Start again with a new checkpointLocation",
        )
    if not ends:
        return position
    return replace(position, next_offsets={**position.next_offsets, **ends})


def next_position(
    position: Position,
    topics: Mapping[str, TopicFacts],
    first: ByPartition,
    latest: ByPartition,
    limit: int | None,
    turn: int = 0,
) -> Position:
    """Where the batch ends. `first` are the beginnings of partitions that `position` lacks."""
    begin = {**position.next_offsets, **first}
    available = {place: latest[place] - begin[place] for place in begin if place in latest}
    available = {place: count for place, count in available.items() if count > 0}
    given = available if limit is None else shares(available, limit, turn)
    return Position(
        next_offsets={place: offset + given.get(place, 0) for place, offset in begin.items()},
        topic_ids={topic: facts.topic_id for topic, facts in topics.items()},
        first_offsets=dict(first),
        group_id=position.group_id,
        query=position.query,
        servers=position.servers,
    )


def with_beginning(end: Position, began: ByPartition) -> Position:
    """The end of a first batch, of which Spark keeps no start: when the batch has to be done again,
    it asks for one anew, and that may be another."""
    first = {place: offset for place, offset in began.items() if place in end.next_offsets}
    return replace(end, first_offsets={**first, **end.first_offsets})


def backlog(position: Position, first: ByPartition, latest: ByPartition) -> int:
    begin = {**position.next_offsets, **first}
    return sum(max(0, latest[place] - begin[place]) for place in begin if place in latest)
