"""Filters that go down to the source mean what Spark means by them."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from ottla.spark.ranges import OffsetRange
from ottla.spark.row_filters import RowFilter, narrowed, taken


@dataclass
class Spark:
    """Stands in for a filter of pyspark: the name of its class is what counts."""

    attribute: tuple[str, ...]
    value: Any = None


def spark_filter(kind: str, column: str, value: Any = None) -> Any:
    return type(kind, (Spark,), {})((column,), value)


NOON = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
ROWS = pa.RecordBatch.from_pydict(
    {
        "key": pa.array([b"a", b"b", None, b"c"], pa.binary()),
        "offset": pa.array([1, 2, 3, 4], pa.int64()),
        "timestamp": pa.array(
            [NOON, NOON + datetime.timedelta(hours=1), NOON, NOON], pa.timestamp("us", tz="UTC")
        ),
    }
)


@pytest.mark.parametrize(
    ("kind", "column", "value", "expected"),
    [
        ("EqualTo", "key", bytearray(b"b"), [2]),
        ("In", "key", (b"a", b"c", None), [1, 4]),
        ("IsNull", "key", None, [3]),
        ("IsNotNull", "key", None, [1, 2, 4]),
        ("GreaterThan", "offset", 2, [3, 4]),
        ("GreaterThanOrEqual", "offset", 2, [2, 3, 4]),
        ("LessThan", "offset", 2, [1]),
        ("LessThanOrEqual", "offset", 2, [1, 2]),
        ("GreaterThan", "timestamp", NOON, [2]),
    ],
)
def test_what_a_filter_keeps(kind: str, column: str, value: Any, expected: list[int]) -> None:
    ours, rest = taken([spark_filter(kind, column, value)])
    assert rest == []
    assert ours[0].apply(ROWS).column("offset").to_pylist() == expected


@pytest.mark.parametrize(
    "other",
    [
        spark_filter("EqualTo", "value", b"x"),
        spark_filter("StringStartsWith", "topic", "x"),
        spark_filter("EqualTo", "key", None),
        Spark(("headers", "key"), 1),
        object(),
    ],
)
def test_what_is_not_taken_goes_back_to_spark(other: Any) -> None:
    assert taken([other]) == ([], [other])


@pytest.mark.parametrize(
    ("kind", "value", "low", "high"),
    [
        ("EqualTo", 15, 15, 16),
        ("GreaterThan", 15, 16, 20),
        ("GreaterThanOrEqual", 15, 15, 20),
        ("LessThan", 15, 10, 15),
        ("LessThanOrEqual", 15, 10, 16),
        ("In", (12, 17), 12, 18),
    ],
)
def test_bounds_on_offsets_narrow_what_is_fetched(
    kind: str, value: Any, low: int, high: int
) -> None:
    found = narrowed([OffsetRange("t", 0, 10, 20)], [RowFilter(kind, "offset", value)])
    assert [(one.start, one.end) for one in found] == [(low, high)]


def test_partitions_and_topics_that_cannot_match_are_not_read() -> None:
    ranges = [OffsetRange(topic, number, 0, 5) for topic in "tu" for number in range(3)]
    found = narrowed(
        ranges, [RowFilter("EqualTo", "topic", "u"), RowFilter("In", "partition", (1,))]
    )
    assert [(one.topic, one.partition) for one in found] == [("u", 1)]
    assert narrowed(ranges, [RowFilter("LessThan", "offset", 0)]) == []
    assert narrowed(ranges, [RowFilter("IsNull", "partition")]) == []


def test_a_lower_bound_of_time_is_known_in_milliseconds() -> None:
    moment = datetime.datetime(1970, 1, 1, 0, 0, 2, tzinfo=datetime.UTC)
    assert RowFilter("GreaterThan", "timestamp", moment).earliest_ms == 2000
    assert RowFilter("LessThan", "timestamp", moment).earliest_ms is None
    assert RowFilter("GreaterThan", "offset", 5).earliest_ms is None
