"""Where a group's offsets would go: every way that Kafka's own tool has, as a plan.

`parse_*` read what people write (ValueError with a message for people); `plan` is pure: it takes
what the partitions hold and what the group has committed, and gives the changes. Never beyond what
a partition holds: an offset outside becomes the nearest one inside, and is told.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ottla.base.ids import TopicPartition

# Java's Duration, as kafka-consumer-groups takes it: days, and hours to seconds behind a T.
ISO_DURATION = re.compile(
    r"P(?:(?P<d>\d+)D)?(?:T(?:(?P<h>\d+)H)?(?:(?P<m>\d+)M)?(?:(?P<s>\d+(?:\.\d{1,9})?)S)?)?",
    re.ASCII | re.IGNORECASE,
)
PLAIN_DURATION = re.compile(
    r"(?:(?P<d>\d+)d)?(?:(?P<h>\d+)h)?(?:(?P<m>\d+)m(?!s))?(?:(?P<s>\d+)s)?(?:(?P<ms>\d+)ms)?",
    re.ASCII,
)
UNIT_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}


@dataclass(slots=True)
class ToEarliest:
    pass


@dataclass(slots=True)
class ToLatest:
    pass


@dataclass(slots=True)
class ToCurrent:
    """What is committed stays; a partition without a commit goes to its end."""


@dataclass(slots=True)
class ToOffset:
    offset: int


@dataclass(slots=True)
class ToTime:
    """The first record that is not older; the end where there is none."""

    timestamp_ms: int


@dataclass(slots=True)
class ShiftBy:
    count: int


@dataclass(slots=True)
class FromFile:
    offsets: dict[TopicPartition, int]


Goal = ToEarliest | ToLatest | ToCurrent | ToOffset | ToTime | ShiftBy | FromFile


@dataclass(slots=True)
class Found:
    """What the cluster knows of the partitions; `by_time` only where a time was asked for."""

    earliest: Mapping[TopicPartition, int]
    latest: Mapping[TopicPartition, int]
    committed: Mapping[TopicPartition, int]
    by_time: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(slots=True)
class Change:
    """`asked`: the offset that was wanted, where it does not exist."""

    partition: TopicPartition
    current: int | None
    new: int
    asked: int | None = None


def plan(goal: Goal, partitions: Iterable[TopicPartition], found: Found) -> list[Change]:
    """ValueError where a shift has nothing to start from."""
    changes = []
    for one in sorted(partitions):
        wanted = _wanted(goal, one, found)
        new = max(found.earliest[one], min(wanted, found.latest[one]))
        current = found.committed.get(one)
        changes.append(Change(one, current, new, None if new == wanted else wanted))
    return changes


def _wanted(goal: Goal, one: TopicPartition, found: Found) -> int:
    match goal:
        case ToEarliest():
            return found.earliest[one]
        case ToLatest():
            return found.latest[one]
        case ToCurrent():
            return found.committed.get(one, found.latest[one])
        case ToOffset(offset=offset):
            return offset
        case ToTime():
            return found.by_time.get(one, found.latest[one])
        case ShiftBy(count=count):
            if one not in found.committed:
                raise ValueError(f"{one[0]}-{one[1]} has no committed offset to shift from")
            return found.committed[one] + count
        case FromFile(offsets=offsets):
            return offsets[one]


# ----------------------------------------------------------------------------------- what is said


def parse_duration(text: str) -> int:
    """Milliseconds: `PT1H30M`, `P7D`, or plainly `90m`, `1h30m`, `7d`."""
    match = ISO_DURATION.fullmatch(text) or PLAIN_DURATION.fullmatch(text)
    parts = {} if match is None else {unit: n for unit, n in match.groupdict().items() if n}
    if not parts:
        raise ValueError(f"{text!r} is no duration: give it like PT1H30M, P7D or 90m")
    return round(sum(float(number) * UNIT_MS[unit] for unit, number in parts.items()))


def parse_topic(text: str) -> tuple[str, list[int] | None]:
    """`orders` or `orders:0,1`; None: all partitions."""
    topic, colon, numbers = text.partition(":")
    if not topic or not re.fullmatch(r"\d+(,\d+)*" if colon else "", numbers, re.ASCII):
        raise ValueError(f"{text!r} should look like orders or orders:0,1")
    return topic, [int(number) for number in numbers.split(",")] if colon else None


def parse_offsets(lines: Iterable[str]) -> dict[TopicPartition, int]:
    """CSV of topic,partition,offset, as --export and Kafka's tool write it; no heading."""
    offsets: dict[TopicPartition, int] = {}
    for number, row in enumerate(csv.reader(lines, skipinitialspace=True), 1):
        if not row:
            continue
        if len(row) != 3 or not row[0] or not all(_is_number(cell) for cell in row[1:]):
            raise ValueError(f"line {number} should be topic,partition,offset")
        one = (row[0], int(row[1]))
        if one in offsets:
            raise ValueError(f"line {number} names {one[0]}-{one[1]} again")
        offsets[one] = int(row[2])
    if not offsets:
        raise ValueError("there is no offset in it")
    return offsets


def _is_number(text: str) -> bool:
    return re.fullmatch(r"\d+", text, re.ASCII) is not None


def csv_rows(changes: Sequence[Change]) -> list[tuple[str, int, int]]:
    return [(*change.partition, change.new) for change in changes]
