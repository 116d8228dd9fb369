"""Stretches of partitions, and how they become tasks, in the stock connector's shares. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The records of one partition from `start` up to `end`, exclusive."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: str = ""

    @property
    def size(self) -> int:
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} from {self.start} to {self.end}"


def tasks_of(
    ranges: Sequence[OffsetRange], min_partitions: int, max_records: int | None
) -> list[OffsetRange]:
    """At most `max_records` offsets a task, and about `min_partitions` tasks in all, if that many
    records there are; a large partition is divided before a small one."""
    pieces = [one for one in ranges if one.size > 0]
    if max_records is not None:
        pieces = [part for one in pieces for part in divided(one, -(-one.size // max_records))]
    if len(pieces) >= min_partitions:
        return pieces
    total = sum(one.size for one in pieces)
    whole = [one for one in pieces if _share(one.size, total, min_partitions) == 1]
    left = total - sum(one.size for one in whole)
    wanted = max(min_partitions - len(whole), 1)
    return [
        part
        for one in pieces
        for part in divided(one, 1 if one in whole else _share(one.size, left, wanted))
    ]


def divided(whole: OffsetRange, count: int) -> list[OffsetRange]:
    count = max(1, min(count, whole.size))
    edges = [whole.start + whole.size * index // count for index in range(count + 1)]
    return [
        OffsetRange(whole.topic, whole.partition, start, end, whole.topic_id)
        for start, end in itertools.pairwise(edges)
    ]


def _share(size: int, total: int, count: int) -> int:
    # Half up, as Java's round; Python's own rounds half to even.
    return max(1, int(size / total * count + 0.5)) if total else 1
