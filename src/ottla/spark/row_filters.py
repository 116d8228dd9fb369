"""Filters that Spark hands to a batch read: which it takes, and what they mean on Arrow columns.

Pure. A filter that is taken is applied exactly, on columns, before the rows go to the JVM; bounds
on offsets and partitions also narrow what is fetched at all. What is not taken goes back to Spark.
"""

from __future__ import annotations

import datetime
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ottla.spark.ranges import OffsetRange

if TYPE_CHECKING:
    import pyarrow as pa

_COLUMNS = ("key", "topic", "partition", "offset", "timestamp")
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "EqualTo": operator.eq,
    "GreaterThan": operator.gt,
    "GreaterThanOrEqual": operator.ge,
    "LessThan": operator.lt,
    "LessThanOrEqual": operator.le,
}
_COMPARISONS = {
    "EqualTo": "equal",
    "GreaterThan": "greater",
    "GreaterThanOrEqual": "greater_equal",
    "LessThan": "less",
    "LessThanOrEqual": "less_equal",
}


@dataclass(frozen=True, slots=True)
class RowFilter:
    """`kind` is the name of Spark's filter class."""

    kind: str
    column: str
    value: Any = None

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa
        import pyarrow.compute as pc

        column = batch.column(self.column)
        if self.kind == "IsNull":
            mask = pc.is_null(column)
        elif self.kind == "IsNotNull":
            mask = pc.is_valid(column)
        elif self.kind == "In":
            mask = pc.is_in(column, value_set=pa.array(self.value, type=column.type))
        else:
            mask = getattr(pc, _COMPARISONS[self.kind])(
                column, pa.scalar(self.value, type=column.type)
            )
        return batch.filter(mask)

    @property
    def earliest_ms(self) -> int | None:
        """A record at or after this time is wanted, none before it."""
        if self.column != "timestamp" or not self.kind.startswith(("Greater", "EqualTo")):
            return None
        return int(self.value.timestamp() * 1000)


def taken(filters: Iterable[Any]) -> tuple[list[RowFilter], list[Any]]:
    """Ours, and those that Spark keeps."""
    ours: list[RowFilter] = []
    rest: list[Any] = []
    for one in filters:
        found = _of_spark(one)
        if found is None:
            rest.append(one)
        else:
            ours.append(found)
    return ours, rest


def _of_spark(one: Any) -> RowFilter | None:
    attribute = getattr(one, "attribute", None)
    if not isinstance(attribute, tuple) or len(attribute) != 1 or attribute[0] not in _COLUMNS:
        return None
    kind, column = type(one).__name__, attribute[0]
    if kind in ("IsNull", "IsNotNull"):
        return RowFilter(kind, column)
    value = getattr(one, "value", None)
    if kind == "In":
        values = tuple(_plain(each) for each in value or () if each is not None)
        return RowFilter(kind, column, values)
    if kind not in _COMPARISONS or value is None:
        return None
    return RowFilter(kind, column, _plain(value))


def _plain(value: Any) -> Any:
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, datetime.datetime) and value.tzinfo is None:
        return value.astimezone(datetime.UTC)
    return value


def narrowed(ranges: Sequence[OffsetRange], filters: Iterable[RowFilter]) -> list[OffsetRange]:
    """Without what the filters on topic, partition and offset rule out."""
    found = list(ranges)
    for one in filters:
        if one.column in ("topic", "partition"):
            found = [each for each in found if _keeps(one, getattr(each, one.column))]
        elif one.column == "offset":
            found = [_bounded(each, one) for each in found]
    return [each for each in found if each.size > 0]


def _keeps(one: RowFilter, value: Any) -> bool:
    if one.kind == "IsNull":
        return False
    if one.kind == "In":
        return value in one.value
    if one.kind == "IsNotNull":
        return True
    return bool(_OPERATORS[one.kind](value, one.value))


def _bounded(stretch: OffsetRange, one: RowFilter) -> OffsetRange:
    low, high = stretch.start, stretch.end
    if one.kind == "EqualTo":
        low, high = max(low, one.value), min(high, one.value + 1)
    elif one.kind == "In" and one.value:
        low, high = max(low, min(one.value)), min(high, max(one.value) + 1)
    elif one.kind in ("IsNull", "In"):
        high = low
    elif one.kind == "GreaterThan":
        low = max(low, one.value + 1)
    elif one.kind == "GreaterThanOrEqual":
        low = max(low, one.value)
    elif one.kind == "LessThan":
        high = min(high, one.value)
    elif one.kind == "LessThanOrEqual":
        high = min(high, one.value + 1)
    return replace(stretch, start=low, end=max(low, high))
