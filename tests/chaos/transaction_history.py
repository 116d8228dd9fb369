"""What transactions must not show: the judge of the chaos with transactions. Pure.

Each writer counts its transactions, and each of them writes `parts` values that carry its number.
A writer that dies or gives up leaves one of which nobody was told: all of it is there, or nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Value:
    """Number `part` of what transaction `number` of `writer` wrote."""

    writer: str
    number: int
    part: int

    def text(self) -> str:
        return f"{self.writer}.{self.number}.{self.part}"

    @classmethod
    def of(cls, text: str) -> Value:
        writer, number, part = text.split(".")
        return cls(writer, int(number), int(part))


@dataclass(frozen=True, slots=True)
class Seen:
    """A read_committed reader saw this value at this place."""

    value: Value
    partition: int
    offset: int


@dataclass(slots=True)
class TransactionHistory:
    """`reads` are those of each reader in its order, which went on all the time; `final` is what
    one more saw from the beginning, after all was healed. In `committed` and `aborted` is what
    writers were told of, by (writer, number)."""

    parts: int
    committed: set[tuple[str, int]] = field(default_factory=set)
    aborted: set[tuple[str, int]] = field(default_factory=set)
    reads: dict[str, list[Seen]] = field(default_factory=dict)
    final: list[Seen] = field(default_factory=list)


def anomalies(history: TransactionHistory) -> list[str]:
    return [
        *_aborted_reads(history),
        *_torn(history),
        *_lost(history),
        *_doubled(history),
        *_reordered(history),
        *_other_reads(history),
    ]


def _aborted_reads(history: TransactionHistory) -> Iterable[str]:
    for reader, reads in _everybody(history):
        for seen in reads:
            if (seen.value.writer, seen.value.number) in history.aborted:
                yield f"aborted read: {reader} saw {seen}"


def _torn(history: TransactionHistory) -> Iterable[str]:
    """Only in the end: nobody promises a reader all partitions of a transaction at one moment."""
    there: dict[tuple[str, int], set[int]] = defaultdict(set)
    for seen in history.final:
        there[seen.value.writer, seen.value.number].add(seen.value.part)
    for transaction, parts in there.items():
        if len(parts) < history.parts:
            yield f"torn: of {transaction} only {sorted(parts)}"


def _lost(history: TransactionHistory) -> Iterable[str]:
    there = {(seen.value.writer, seen.value.number) for seen in history.final}
    for transaction in sorted(history.committed - there):
        yield f"lost commit: {transaction}"


def _doubled(history: TransactionHistory) -> Iterable[str]:
    places: dict[Value, tuple[int, int]] = {}
    for seen in history.final:
        place = (seen.partition, seen.offset)
        if seen.value in places:
            yield f"doubled: {seen.value} at {places[seen.value]} and {place}"
        places[seen.value] = place


def _reordered(history: TransactionHistory) -> Iterable[str]:
    last: dict[tuple[str, int], tuple[int, int]] = {}
    for seen in sorted(history.final, key=lambda one: (one.partition, one.offset)):
        key, order = (seen.value.writer, seen.partition), (seen.value.number, seen.value.part)
        if order < last.get(key, order):
            yield f"reordered: {seen} lies behind {last[key]}"
        last[key] = order


def _other_reads(history: TransactionHistory) -> Iterable[str]:
    """What is stable does not change: a reader sees what is there in the end, from the beginning to
    where it has come."""
    finally_ = _by_partition(history.final)
    for reader, reads in history.reads.items():
        for partition, seen in _by_partition(reads).items():
            wanted = finally_.get(partition, [])
            for number, one in enumerate(seen):
                if number >= len(wanted) or wanted[number] != one:
                    there = wanted[number] if number < len(wanted) else None
                    yield f"other read: {reader} saw {one} where in the end {there} is"
                    break


def _everybody(history: TransactionHistory) -> Iterable[tuple[str, list[Seen]]]:
    return (*history.reads.items(), ("the last reader", history.final))


def _by_partition(reads: list[Seen]) -> dict[int, list[Seen]]:
    found: dict[int, list[Seen]] = defaultdict(list)
    for seen in reads:
        found[seen.partition].append(seen)
    return found
