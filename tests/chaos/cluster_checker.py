"""What a history of writes and reads must not show: the judge of the chaos tests. Pure.

A history has what every process was told, in its order. Values are unique and carry a number that
counts per writer; each writer has a partition to itself. One pass over dictionaries for each rule.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Ack:
    """The writer was told that its value is at this place."""

    writer: str
    number: int
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """The writer was told for certain that its value was not written."""

    writer: str
    number: int


@dataclass(frozen=True, slots=True)
class Read:
    """`reader` saw this value at this place; a new life of a reader is another reader."""

    reader: str
    writer: str
    number: int
    partition: int
    offset: int


@dataclass(slots=True)
class History:
    """`final` is everything, read from the beginning after all was healed. What became of a send
    that is in none of the lists is not known, and anything may have."""

    acks: list[Ack] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    final: list[Read] = field(default_factory=list)


def anomalies(history: History) -> list[str]:
    return [
        *_changed(history),
        *_lost(history),
        *_doubled(history),
        *_reordered(history),
        *_refused_and_read(history),
        *_jumps(history.reads),
        *_jumps(history.final),
    ]


def _changed(history: History) -> Iterable[str]:
    """Two values at one offset: a reader or a writer was told something else than another."""
    at: dict[tuple[int, int], tuple[str, int]] = {}
    told: list[Ack | Read] = [*history.acks, *history.reads, *history.final]
    for one in told:
        place, value = (one.partition, one.offset), (one.writer, one.number)
        if at.setdefault(place, value) != value:
            yield f"changed: {place} was {at[place]} and is {value} for {_who(one)}"


def _lost(history: History) -> Iterable[str]:
    there = {(one.writer, one.number) for one in history.final}
    for ack in history.acks:
        if (ack.writer, ack.number) not in there:
            yield f"lost: {ack} was acknowledged and can't be read"
    for read in history.reads:
        if (read.writer, read.number) not in there:
            yield f"vanished: {read} was read once and can't be read any more"


def _doubled(history: History) -> Iterable[str]:
    places: dict[tuple[str, int], tuple[int, int]] = {}
    for one in (*history.final, *history.reads):
        place = (one.partition, one.offset)
        if places.setdefault((one.writer, one.number), place) != place:
            first = places[one.writer, one.number]
            yield f"doubled: {one.writer} {one.number} at {first} and {place}"


def _reordered(history: History) -> Iterable[str]:
    """A writer's values lie in the order in which it sent them."""
    last: dict[tuple[str, int], int] = {}
    for one in sorted(history.final, key=lambda read: (read.partition, read.offset)):
        key = (one.writer, one.partition)
        if one.number < last.get(key, -1):
            yield f"reordered: {one.writer} {one.number} lies behind {last[key]}"
        last[key] = max(one.number, last.get(key, -1))


def _refused_and_read(history: History) -> Iterable[str]:
    there = {(one.writer, one.number) for one in (*history.final, *history.reads)}
    for refusal in history.refusals:
        if (refusal.writer, refusal.number) in there:
            yield f"refused and there: {refusal}"


def _jumps(reads: list[Read]) -> Iterable[str]:
    """A reader sees one offset after the other, none twice and none left out."""
    next_: dict[tuple[str, int], int] = {}
    for one in reads:
        key = (one.reader, one.partition)
        if one.offset != next_.get(key, one.offset):
            yield f"jump: {one.reader} is at {one.offset} of {one.partition}, not {next_[key]}"
        next_[key] = one.offset + 1


def _who(one: Ack | Read) -> str:
    return one.reader if isinstance(one, Read) else one.writer
