"""How much a batch may take: the limit shared over partitions, and the wait for enough records.

Pure; time is an argument. The limit is never exceeded, and no partition waits forever: those whose
share rounds to nothing take turns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ottla.base.ids import TopicPartition


def shares(
    available: Mapping[TopicPartition, int], limit: int, turn: int = 0
) -> dict[TopicPartition, int]:
    """Of `available` records, `limit` in all, in proportion; what rounding leaves goes one each,
    first to partitions that have nothing yet. `turn` says which of them begin."""
    waiting = {place: count for place, count in sorted(available.items()) if count > 0}
    total = sum(waiting.values())
    if total <= limit:
        return dict(waiting)
    given = {place: count * limit // total for place, count in waiting.items()}
    left = limit - sum(given.values())
    places = list(waiting)
    first = turn % len(places)
    order = places[first:] + places[:first]
    order.sort(key=lambda place: given[place] > 0)  # stable: the empty-handed first, in turn
    for place in order:
        if left == 0:
            break
        if given[place] < waiting[place]:
            given[place] += 1
            left -= 1
    return {place: count for place, count in given.items() if count > 0}


@dataclass(slots=True)
class TriggerPace:
    """minOffsetsPerTrigger: wait until that many records are there, or long enough."""

    least: int
    max_delay_ms: int
    last_batch_ms: int | None = None

    def admits(self, available: int, now_ms: int) -> bool:
        """Whether a batch of `available` records may begin; takes note of it if so. The first
        batch of a run never waits, as in the stock connector."""
        if available == 0:
            return False
        waited = self.last_batch_ms is None or now_ms - self.last_batch_ms >= self.max_delay_ms
        if available < self.least and not waited:
            return False
        self.last_batch_ms = now_ms
        return True
