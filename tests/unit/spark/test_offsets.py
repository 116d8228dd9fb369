"""What a checkpoint holds, and what lies between two of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ottla.spark.errors import OffsetError
from ottla.spark.offsets import Position, position_of, ranges_between
from ottla.spark.ranges import OffsetRange

BEFORE = Position({("t", 0): 5, ("t", 1): 7}, {"t": "id"}, {}, "group", "query", "127.0.0.1:9092")


def test_a_position_survives_its_text() -> None:
    text = json.dumps(BEFORE.as_spark())
    assert position_of(json.loads(text)) == BEFORE
    assert json.dumps(position_of(json.loads(text)).as_spark()) == text


def test_the_offsets_stand_where_the_stock_connector_has_them() -> None:
    assert BEFORE.as_spark()["t"] == {"0": 5, "1": 7}


def test_what_lies_between() -> None:
    after = Position({("t", 0): 9, ("t", 1): 7, ("t", 2): 3}, {"t": "id"}, {("t", 2): 1})
    assert ranges_between(BEFORE, after) == [
        OffsetRange("t", 0, 5, 9, "id"),
        OffsetRange("t", 2, 1, 3, "id"),
    ]


def test_a_topic_that_began_anew_is_read_from_its_new_beginning() -> None:
    after = Position({("t", 0): 2}, {"t": "other"}, {("t", 0): 0})
    assert ranges_between(BEFORE, after) == [OffsetRange("t", 0, 0, 2, "other")]


def test_offsets_without_a_beginning_are_refused() -> None:
    with pytest.raises(OffsetError, match="where u-0 begins"):
        ranges_between(BEFORE, Position({("u", 0): 2}, {"u": "id"}))


def test_a_checkpoint_of_the_stock_connector_goes_on() -> None:
    assert position_of({"t": {"0": 5}}) == Position({("t", 0): 5}, {})


@pytest.mark.parametrize(
    "foreign",
    [
        {},
        7,
        [],
        {"logOffset": 3},
        {"t": 5, "$ottla": {"ids": {}}},
        {"t": {"x": 5}, "$ottla": {"ids": {}}},
        {"t": {"0": 5}, "$ottla": []},
    ],
)
def test_offsets_of_another_source_are_refused_with_the_way_out(foreign: Any) -> None:
    with pytest.raises(OffsetError, match="checkpointLocation of its own"):
        position_of(foreign)
