"""From a position that people name to an offset of every partition."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.base.ids import TopicPartition
from ottla.cli.failure import Failure
from ottla.cli.model import TopicPlace
from ottla.cli.positions import Position, SinceTime, start_offset

if TYPE_CHECKING:
    from ottla.cli.connection import Connection


@dataclass(slots=True)
class Stretch:
    """What a partition holds, `latest` exclusive, and where reading starts."""

    earliest: int
    latest: int
    start: int


def partitions_of(
    places: Sequence[TopicPlace], wanted: Sequence[int] | None
) -> list[TopicPartition]:
    """All partitions of the topics, or the wanted ones of each; all must have a leader."""
    found: list[TopicPartition] = []
    for topic in places:
        leaders = {partition.partition: partition.leader for partition in topic.partitions}
        for number in sorted(set(wanted)) if wanted else leaders:
            if number not in leaders:
                raise Failure(
                    f"topic {topic.name} has no partition {number}; it has {len(leaders)} (from 0)"
                )
            if leaders[number] is None:
                raise Failure(f"{topic.name}-{number} has no leader now")
            found.append((topic.name, number))
    return found


def find_offsets(
    connection: Connection,
    partitions: Iterable[TopicPartition],
    position: Position,
    *,
    committed: bool = True,
) -> dict[TopicPartition, Stretch]:
    wanted = list(partitions)
    earliest = connection.offsets(dict.fromkeys(wanted, "earliest"), committed=committed)
    latest = connection.offsets(dict.fromkeys(wanted, "latest"), committed=committed)
    by_time = {}
    if isinstance(position, SinceTime):
        by_time = connection.offsets(
            dict.fromkeys(wanted, position.timestamp_ms), committed=committed
        )
    stretches: dict[TopicPartition, Stretch] = {}
    for one in wanted:
        first, last, timed = earliest.get(one), latest.get(one), by_time.get(one)
        low = 0 if first is None else first.offset
        high = low if last is None else last.offset
        start = start_offset(position, low, high, None if timed is None else timed.offset)
        stretches[one] = Stretch(low, high, start)
    return stretches
